"""Exact decimals as Kafka Connect writes them: the unscaled integer's bytes, biggest first, in base 64."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.connectors.base.conversion import from_value

DIGITS = 38
_BYTES = 16


def decimals(text: pl.Series, scale: int) -> pl.Series:
    """The decimals; null where the text is no such number, or one that no column can hold.

    >>> decimals(pl.Series(["BNI=", "/y4=", "?"]), 2).to_list()
    [Decimal('12.34'), Decimal('-2.10'), None]
    """
    if not 0 <= scale <= DIGITS:
        return pl.Series(text.name, [None] * len(text), dtype=pl.Decimal(DIGITS, 0))
    # Not in a view of a longer column: the offsets below count from the first byte.
    array = text.str.decode("base64", strict=False).to_arrow().cast(pa.large_binary())
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    buffers = whole.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int64)[whole.offset : whole.offset + len(text) + 1]
    given = np.frombuffer(buffers[2], dtype=np.uint8) if buffers[2] is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    # Arrow keeps decimals as integers of 16 bytes, smallest first.
    numbers = np.zeros((len(text), _BYTES), dtype=np.uint8)
    for length in np.unique(lengths[(lengths > 0) & (lengths <= _BYTES)]).tolist():
        rows = np.flatnonzero(lengths == length)
        digits = given[offsets[rows][:, None] + np.arange(length)]
        numbers[rows, :length] = digits[:, ::-1]
        numbers[rows[digits[:, 0] >= 128], length:] = 255
    held = np.packbits((lengths > 0) & (lengths <= _BYTES), bitorder="little")
    made = pa.Array.from_buffers(
        pa.decimal128(DIGITS, scale), len(text), [pa.py_buffer(held.tobytes()), pa.py_buffer(numbers.tobytes())]
    )
    series = pl.from_arrow(made)
    assert isinstance(series, pl.Series)  # for the type checker: an array always becomes a series
    return series.alias(text.name)


def scaled_decimals(text: pl.Series, declared: pl.DataType) -> pl.Series:
    """Decimals that each say their own scale, as ``{"scale": 3, "value": "Fi4="}``, in the declared type.

    >>> scaled_decimals(pl.Series(['{"scale": 3, "value": "Fi4="}']), pl.Decimal(10, 3)).to_list()
    [Decimal('5.678')]
    """
    parts = text.to_frame("text").select(
        row=pl.int_range(pl.len()),
        # A decimal column with the name ``scale`` has made text of the number.
        scale=pl.col("text").str.extract(r'"scale":\s*"?\s*(\d+)').cast(pl.Int64, strict=False),
        value=pl.col("text").str.extract(r'"value":\s*"([^"]*)"'),
    )
    converted = [
        part.select("row", value=from_value(decimals(part["value"], scale), declared))
        for (scale,), part in parts.drop_nulls("scale").partition_by("scale", as_dict=True).items()
    ]
    known = pl.concat(converted) if converted else pl.DataFrame(schema={"row": pl.Int64(), "value": declared})
    return parts.select("row").join(known, on="row", how="left", maintain_order="left")["value"].alias(text.name)
