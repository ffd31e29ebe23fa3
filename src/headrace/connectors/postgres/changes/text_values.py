"""Values in PostgreSQL's text form, a whole column at a time, as values of a declared type."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.connectors.base.decoding import inner_type

# A quoted item with its escapes, or a plain one.
_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = r'["\\]'
_BOUNDS = r"^\[[^={]*\]="
_NULL = "NULL"


def split_arrays(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The items of all arrays, and how many each array has; null for a null and for an array of arrays.

    >>> items, lengths = split_arrays(pl.Series(["{1,NULL}", "{}", None, '{"a,b",c}', "{{1},{2}}"]))
    >>> items.to_list(), lengths.to_list()
    (['1', None, 'a,b', 'c'], [2, 0, None, 2, None])
    """
    # Explicit bounds, as in [0:1]={5,6}, are ignored.
    inside = texts.str.replace(_BOUNDS, "").str.strip_prefix("{").str.strip_suffix("}").to_frame("text")
    text = pl.col("text")
    quoted = text.str.contains(_QUOTED)
    plain = pl.when(~quoted & ~text.str.starts_with("{")).then(
        pl.when(text == "").then(pl.lit([], pl.List(pl.String))).otherwise(text.str.split(","))
    )
    frame = inside.with_columns(plain.list.eval(pl.element().replace({_NULL: None})).alias("items"), quoted.alias("q"))
    places = frame["q"].fill_null(False).arg_true()
    if places.len():
        # Only arrays with quotes or escapes need a parser, which goes row by row.
        parsed = {"place": places, "parsed": [_items(each) for each in frame["text"].gather(places)]}
        by_place = pl.DataFrame(parsed, schema={"place": pl.UInt32, "parsed": pl.List(pl.String)})
        frame = frame.with_row_index("place").join(by_place, on="place", how="left", maintain_order="left")
        frame = frame.with_columns(pl.coalesce("items", "parsed").alias("items"))
    return frame["items"].explode(empty_as_null=False, keep_nulls=False), frame["items"].list.len()


def join_arrays(items: pl.Series, lengths: pl.Series) -> pl.Series:
    """The inverse: items as lists of these lengths.

    >>> join_arrays(pl.Series([1, 2, 3]), pl.Series([2, None, 1])).to_list()
    [[1, 2], None, [3]]
    """
    offsets = np.concatenate(([0], np.cumsum(lengths.fill_null(0).to_numpy()))).astype(np.int64)
    missing = lengths.is_null().to_arrow()
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), items.rechunk().to_arrow(), mask=missing)
    return pl.Series(lists, dtype=pl.List(items.dtype))


def _items(text: str) -> list[str | None] | None:
    if text.startswith("{"):
        return None
    found = _ITEM.finditer(text)
    return [
        _ESCAPED.sub(r"\1", item[1]) if item[1] is not None else None if item[2] == _NULL else item[2] for item in found
    ]


FIRST_MOMENT, LAST_MOMENT = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
"""The limits of Spark's calendar, to which infinities and years outside of it are clamped."""
_TIME = "%Y-%m-%d %H:%M:%S%.f"
_DAY = "%Y-%m-%d"
_BEFORE = r"^-infinity$| BC$"
_AFTER = r"^infinity$|^\d{5,}-"


def parse_values(texts: pl.Series, kind: pl.DataType) -> pl.Series:
    """Texts as a declared type; null where a text is not a value of it.

    >>> parse_values(pl.Series(["t", None, "f"]), pl.Boolean()).to_list()
    [True, None, False]
    >>> parse_values(pl.Series(["2026-01-01 10:00:00.5+00", "infinity"]), pl.Datetime("us", "UTC")).dt.year().to_list()
    [2026, 9999]
    """
    match kind:
        case pl.String():
            return texts
        case pl.Boolean():
            return texts.replace_strict({"t": True, "f": False}, default=None, return_dtype=pl.Boolean)
        case pl.Binary():
            return texts.str.slice(2).str.decode("hex", strict=False)
        case pl.Datetime():
            times = _clamped(texts.str.strip_suffix("+00"), LAST_MOMENT, FIRST_MOMENT)
            parsed = times.str.to_datetime(_TIME, time_unit="us", strict=False)
            return parsed if kind.time_zone is None else parsed.dt.replace_time_zone("UTC")
        case pl.Date():
            return _clamped(texts, LAST_MOMENT[:10], FIRST_MOMENT[:10]).str.to_date(_DAY, strict=False)
        case pl.Decimal():
            # A number with more decimal places would be rounded.
            places = texts.str.extract(r"\.(\d*?)0*$").str.len_chars().fill_null(0)
            return texts.set(places > kind.scale, None).cast(kind, strict=False)
        case pl.List():
            items, lengths = split_arrays(texts)
            values = parse_values(items, inner_type(kind))
            lists = join_arrays(values, lengths)
            broken = join_arrays(unreadable(items, values), lengths).list.any()
            return lists.set(broken.fill_null(False), None) if broken.any() else lists
    return texts.cast(kind, strict=False)


def unreadable(texts: pl.Series, values: pl.Series) -> pl.Series:
    """Which texts are not values of the column's type; NaN in a decimal column is null and allowed.

    >>> texts = pl.Series(["1.5", "NaN", "x"])
    >>> unreadable(texts, parse_values(texts, pl.Decimal(5, 2))).to_list()
    [False, False, True]
    """
    lost = values.is_null() & texts.is_not_null()
    return lost & (texts != "NaN").fill_null(True) if isinstance(values.dtype, pl.Decimal) else lost


def _clamped(texts: pl.Series, last: str, first: str) -> pl.Series:
    frame = texts.to_frame("text")
    after, before = pl.col("text").str.contains(_AFTER), pl.col("text").str.contains(_BEFORE)
    clamped = pl.when(before).then(pl.lit(first)).when(after).then(pl.lit(last)).otherwise("text")
    return frame.select(clamped.alias("text")).to_series()
