"""What stands at the outermost level of JSON objects, so that a name in a row is not taken for one of the message."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from headrace.connectors.base.lines import Integers

_QUOTE, _BEGIN, _END = 1, 2, 3
_MARKS = bytes({34: _QUOTE, 91: _BEGIN, 123: _BEGIN, 93: _END, 125: _END}.get(code, 0) for code in range(256))


def outermost(objects: pl.Series) -> pl.Series:
    """JSON objects without what their own objects and lists hold; of each of these only its end is left.

    >>> outermost(pl.Series(['{"op": "c", "after": {"op": "{", "n": [1]}, "tags": []}'])).to_list()
    ['{"op": "c", "after": }, "tags": ]}']
    """
    # Without escapes every quote begins or ends a text.
    texts = objects.str.replace_all(r"\\.", "__").cast(pl.Binary)
    whole = b"".join(texts.to_list())
    bounds = np.concatenate(([0], np.cumsum(texts.bin.size().to_numpy(), dtype=np.int64)))
    marks = np.frombuffer(whole.translate(_MARKS), dtype=np.uint8)
    places = np.flatnonzero(marks)
    found = marks[places]
    counts = np.diff(np.searchsorted(places, bounds))
    outside = _counted(found == _QUOTE, counts) % 2 == 0
    depth = _counted(((found == _BEGIN) & outside).astype(np.int8) - ((found == _END) & outside), counts)
    # What comes before the first mark is kept, what comes after a mark is as deep as that.
    gaps = np.diff(np.concatenate(([0], places, [len(whole)])))
    kept = np.repeat(np.concatenate(([True], depth <= 1)), gaps)
    offsets = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))[bounds]
    left = np.frombuffer(whole, dtype=np.uint8)[kept]
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(left.tobytes())]
    series = pl.from_arrow(pa.Array.from_buffers(pa.large_string(), len(objects), buffers))
    assert isinstance(series, pl.Series)  # for the type checker: an array always becomes a series
    return series.alias(objects.name)


def _counted(steps: npt.NDArray[np.bool_] | npt.NDArray[np.int8], counts: Integers) -> Integers:
    """Running sums that begin anew with each text, which has so many steps."""
    totals = np.concatenate(([0], np.cumsum(steps, dtype=np.int64)))
    counted: Integers = totals[1:] - np.repeat(totals[np.cumsum(counts) - counts], counts)
    return counted
