"""Rows in the shape that systems outside Spark take: flat columns, the last change of each key, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import polars as pl

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
    readable = rows.with_columns(pl.selectors.binary().bin.encode("base64"), *_endless_times(rows))
    stream = BytesIO()
    readable.write_ndjson(stream)
    return stream.getvalue().rstrip(b"\n").split(b"\n")


def _endless_times(rows: pl.DataFrame) -> list[pl.Series]:
    """Columns that hold times no calendar has, as text."""
    found = []
    for times in rows.select(pl.selectors.datetime()).get_columns():
        number = times.to_physical()
        written = number.is_between(_FIRST_MOMENT, _LAST_MOMENT)
        if not written.all():
            text = times.set(~written, None).dt.to_string("iso:strict")
            found.append(text.zip_with(written.fill_null(True), number.cast(pl.String)))
    return found


def refused_rows(rows: pl.DataFrame, reason: str, detail: str) -> pl.DataFrame:
    """Rows that a sink cannot take, for the dead letters.

    >>> refused_rows(pl.DataFrame({"n": [1]}), "KEY_NULL", "account is null").row(0)
    ('KEY_NULL', 'account is null', b'{"n":1}')
    """
    raw = json_rows(rows)
    return pl.DataFrame({"reason": [reason] * len(raw), "detail": [detail] * len(raw), "raw": raw}, schema=REFUSED)
