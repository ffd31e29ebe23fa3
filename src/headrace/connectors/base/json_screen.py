"""A quick look at many JSON lines at once: which of them a strict decode will probably take."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.connectors.base.lines import Lines

# A flat object of plain values. Lines with escapes or nested values do not match, and are merely looked at closely.
_TEXT = r'"[^"\\\x00-\x1f\x{FFFD}]*"'
_PLAIN = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?|true|false|null"
_FLAT_OBJECT = rf"^\{{(?:{_TEXT} ?: ?(?:{_TEXT}|{_PLAIN})(?:, ?|\}}$))+$"
_NUMBERS = (pl.Int64, pl.Float64)


def plausible(lines: Lines, read: Mapping[str, pl.DataType]) -> npt.NDArray[np.bool_]:
    """True for lines that look good; a wrong guess costs time, never a row, because the decode decides.

    >>> from io import BytesIO
    >>> from headrace.connectors.base.lines import read_lines
    >>> lines = next(read_lines(BytesIO(b'{"n": 1}\\n{"n": tr'), max_row_bytes=99))
    >>> plausible(lines, {"n": pl.Int64()}).tolist()
    [True, False]
    """
    line = pl.col("line")
    good = line.str.contains(_FLAT_OBJECT)
    for name, kind in read.items():
        key = f'"{re.escape(name)}" ?: ?'
        if isinstance(kind, _NUMBERS):
            good &= ~line.str.contains(f"{key}[^-0-9n ]")
        elif isinstance(kind, pl.Boolean):
            good &= ~line.str.contains(f"{key}[^tfn ]")
    texts = pl.DataFrame({"line": [raw.decode(errors="replace") for raw in lines.raw()]}, schema={"line": pl.String})
    return texts.select(good).to_series().to_numpy()
