"""Rows in the shape that systems outside Spark take: flat columns, the last change of each key, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from operator import is_

import polars as pl
import pyarrow as pa

from headrace.changelog import CHANGE, REMOVING

_FIRST_MOMENT, _LAST_MOMENT = -8_334_601_228_800_000_000, 8_210_266_876_799_999_999
REFUSED = {"reason": pl.String(), "detail": pl.String(), "raw": pl.Binary()}
"""The columns of rows that a sink cannot take."""


def flat_schema(columns: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """Columns without structs: the fields of ``window`` become ``window_start`` and ``window_end``.

    >>> flat_schema({"n": pl.Int64(), "window": pl.Struct({"start": pl.Date(), "end": pl.Date()})})
    {'n': Int64, 'window_start': Date, 'window_end': Date}
    """
    return dict(flat(pl.DataFrame(schema=columns)).schema)


def flat(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows without structs."""
    while nested := [name for name, kind in rows.schema.items() if isinstance(kind, pl.Struct)]:
        for name in nested:
            fields = rows.schema[name].fields  # type: ignore[attr-defined]
            parts = [pl.col(name).struct.field(field.name).alias(f"{name}_{field.name}") for field in fields]
            before, after = rows.columns[: rows.columns.index(name)], rows.columns[rows.columns.index(name) + 1 :]
            rows = rows.select(*before, *parts, *after)
    return rows


def flat_names(names: Sequence[str], columns: Mapping[str, pl.DataType]) -> tuple[str, ...]:
    """What named columns are called once they are flat.

    >>> flat_names(["n", "window"], {"n": pl.Int64(), "window": pl.Struct({"start": pl.Date(), "end": pl.Date()})})
    ('n', 'window_start', 'window_end')
    """
    return tuple(column for name in names for column in flat_schema({name: columns[name]}))


@dataclass(frozen=True, slots=True)
class Changes:
    """What a batch does to a table: rows to put in, keys to take out, and how many rows were overtaken."""

    upserts: pl.DataFrame
    deletes: pl.DataFrame
    superseded: int


def last_changes(rows: pl.DataFrame, key: Sequence[str]) -> Changes:
    """The last change of each key, in the order in which the rows stand.

    >>> rows = pl.DataFrame({"id": [1, 2, 1], "n": [5, 6, 7], "change": ["insert", "insert", "delete"]})
    >>> changes = last_changes(rows, ["id"])
    >>> changes.upserts.rows(), changes.deletes.rows(), changes.superseded
    ([(2, 6)], [(1,)], 1)
    """
    last = rows.unique(list(key), keep="last", maintain_order=True)
    if CHANGE not in rows.columns:
        return Changes(last, rows.select(key).clear(), rows.height - last.height)
    gone = last[CHANGE].is_in(REMOVING)
    return Changes(last.filter(~gone).drop(CHANGE), last.filter(gone).select(key), rows.height - last.height)


def json_rows(rows: pl.DataFrame) -> list[bytes]:
    """Each row as a JSON object; times in ISO 8601, decimals as text, bytes in base 64.

    A time beyond the years that can be written (about 262,000) is a number of microseconds.

    >>> json_rows(pl.DataFrame({"account": ["a"], "spent": [2.5]}))
    [b'{"account":"a","spent":2.5}']
    """
    if rows.is_empty():
        return []
    return json_lines(rows).rstrip(b"\n").split(b"\n")


def json_lines(rows: pl.DataFrame) -> bytes:
    r"""The same with the end of a line after each object.

    >>> json_lines(pl.DataFrame({"n": [1, 2]}))
    b'{"n":1}\n{"n":2}\n'
    """
    stream = BytesIO()
    rows.with_columns(_readable(values) for values in rows.get_columns()).write_ndjson(stream)
    return stream.getvalue()


def _readable(values: pl.Series) -> pl.Series:
    """Values without bytes and without times that no calendar has, which JSON cannot hold, inside others too."""
    match values.dtype:
        case pl.Binary():
            return values.bin.encode("base64")
        case pl.Datetime():
            return _within_the_calendar(values)
        case pl.List():
            flat_values = values.explode(empty_as_null=False, keep_nulls=False)
            readable = _readable(flat_values)
            return values if readable is flat_values else _lists(readable, values)
        case pl.Struct():
            fields = values.struct.unnest().get_columns()
            readable_fields = [_readable(field) for field in fields]
            if all(map(is_, fields, readable_fields)):
                return values
            whole = pl.DataFrame(readable_fields).to_struct(values.name)
            return whole.zip_with(values.is_not_null(), pl.Series([None], dtype=whole.dtype))
        case _:
            return values


def _lists(elements: pl.Series, like: pl.Series) -> pl.Series:
    """Elements in lists of the lengths that others have."""
    ends = like.list.len().fill_null(0).cast(pl.Int64).cum_sum()
    offsets = pl.concat([pl.Series([0], dtype=pl.Int64), ends.alias("")]).to_arrow()
    missing = like.is_null().to_arrow()
    return pl.Series(like.name, pa.LargeListArray.from_arrays(offsets, elements.to_arrow(), mask=missing))


def _within_the_calendar(times: pl.Series) -> pl.Series:
    """Times as they are, or as text when one of them is beyond the calendar."""
    number = times.to_physical()
    written = number.is_between(_FIRST_MOMENT, _LAST_MOMENT)
    if written.all():
        return times
    text = times.set(~written, None).dt.to_string("iso:strict")
    return text.zip_with(written.fill_null(True), number.cast(pl.String))


def refused_rows(rows: pl.DataFrame, reason: str, detail: str) -> pl.DataFrame:
    """Rows that a sink cannot take, for the dead letters.

    >>> refused_rows(pl.DataFrame({"n": [1]}), "KEY_NULL", "account is null").row(0)
    ('KEY_NULL', 'account is null', b'{"n":1}')
    """
    raw = json_rows(rows)
    return pl.DataFrame({"reason": [reason] * len(raw), "detail": [detail] * len(raw), "raw": raw}, schema=REFUSED)
