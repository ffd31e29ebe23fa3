"""Rows in the binary form of PostgreSQL's COPY, which costs the server half of what text does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.postgres.types import Column, sql_type

HEADER, TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_ROWS_AT_ONCE = 50_000
_NULL = -1
# PostgreSQL counts from the year 2000.
_FIRST_DAY, _FIRST_MICROSECOND = 10_957, 946_684_800_000_000
_FIXED: tuple[tuple[type[pl.DataType], str], ...] = (
    (pl.Boolean, "u1"),
    (pl.Int8, ">i2"),
    (pl.Int16, ">i2"),
    (pl.Int32, ">i4"),
    (pl.Int64, ">i8"),
    (pl.Float32, ">f4"),
    (pl.Float64, ">f8"),
    (pl.Date, ">i4"),
    (pl.Datetime, ">i8"),
)
_TEXTS = ("text", "character varying")


def takes_binary(existing: Mapping[str, Column], columns: Mapping[str, pl.DataType]) -> bool:
    """Whether each column is of exactly the type whose binary form ours has; as text PostgreSQL converts others too.

    >>> bigint, uuid = Column("bigint", "N", "bigint", False), Column("uuid", "U", "uuid", False)
    >>> takes_binary({"n": bigint}, {"n": pl.Int64()}), takes_binary({"n": uuid}, {"n": pl.String()})
    (True, False)
    """
    return all(name in existing and _is_same(existing[name].type, kind) for name, kind in columns.items())


def _is_same(existing: str, kind: pl.DataType) -> bool:
    if isinstance(kind, pl.String):
        return existing in _TEXTS
    if isinstance(kind, pl.Datetime) and kind.time_unit != "us":
        return False
    known = isinstance(kind, pl.Binary) or any(isinstance(kind, fixed) for fixed, _ in _FIXED)
    return known and existing == sql_type(kind, "")


def binary_parts(rows: pl.DataFrame) -> Iterator[bytes | memoryview]:
    r"""Rows of columns that ``takes_binary`` knows, as PostgreSQL's COPY reads them.

    >>> b"".join(binary_parts(pl.DataFrame({"s": ["a", None]})))[len(HEADER) :]
    b'\x00\x01\x00\x00\x00\x01a\x00\x01\xff\xff\xff\xff\xff\xff'
    """
    yield HEADER
    nothing = pa.scalar(b"", pa.large_binary())
    for part in rows.iter_slices(_ROWS_AT_ONCE):
        width = _records(np.full(part.height, rows.width, ">i2"))
        fields = [array for column in part.iter_columns() for array in _field(column)]
        joined = pc.binary_join_element_wise(width, *fields, nothing)
        _, ends, joint = joined.buffers()
        # One value after the other without a gap: that is the stream.
        yield memoryview(joint)[: np.frombuffer(ends, np.int64)[len(joined)]]
    yield TRAILER


def _field(column: pl.Series) -> list[pa.Array]:
    """The length of each value, and the value."""
    present = column.is_not_null()
    if isinstance(column.dtype, pl.String | pl.Binary):
        values = column.cast(pl.Binary)
        lengths = values.bin.size().cast(pl.Int32).fill_null(_NULL)
        body = values.fill_null(b"").to_arrow(compat_level=pl.CompatLevel.oldest())
        return [_records(lengths.to_numpy().astype(">i4")), body.cast(pa.large_binary())]
    code = next(code for kind, code in _FIXED if isinstance(column.dtype, kind))
    record = np.empty(len(column), [("length", ">i4"), ("value", code)])
    record["length"], record["value"] = np.dtype(code).itemsize, _numbers(column).fill_null(0).to_numpy()
    if present.all():
        return [_records(record)]
    return [pc.if_else(present.to_arrow(), _records(record), pa.scalar(b"\xff" * 4, pa.large_binary()))]


def _numbers(column: pl.Series) -> pl.Series:
    match column.dtype:
        case pl.Boolean():
            return column.cast(pl.UInt8)
        case pl.Date():
            return column.to_physical() - _FIRST_DAY
        case pl.Datetime():
            # A moment before all that PostgreSQL knows must stay one: neither wrap around nor mean "-infinity".
            return column.to_physical().clip(lower_bound=_FIRST_MICROSECOND + 1 - 2**63) - _FIRST_MICROSECOND
        case _:
            return column


def _records(values: np.ndarray[Any, Any]) -> pa.Array:
    """Values of one size as bytes."""
    size = values.dtype.itemsize
    ends = np.arange(0, size * (len(values) + 1), size, dtype=np.int64)
    return pa.Array.from_buffers(pa.large_binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(values)])
