"""Values in PostgreSQL's text form, a whole column at a time, as values of a declared type."""

from __future__ import annotations

import polars as pl

from headrace.connectors.base.decoding import inner_type

FIRST_MOMENT, LAST_MOMENT = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
"""The limits of Spark's calendar, to which infinities and years outside of it are clamped."""
_TIME, _DAY = "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d"
_BEFORE, _AFTER = r"^-infinity$| BC$", r"^infinity$|^\d{5,}-"
# Of an array: explicit bounds, as in [0:1]={5,6}, which are ignored; an item in quotes with its escapes, or without.
_BOUNDS = r"^\[[^={]*\]="
_ITEM = r'(?s)"(?:[^"\\]|\\.)*"|[^",]+'
_QUOTED, _ESCAPED = r'["\\]', r"(?s)\\(.)"


def parse_values(texts: pl.Series, kind: pl.DataType) -> pl.Series:
    """Texts as a declared type; null where a text is not a value of it."""
    if isinstance(kind, pl.List):
        return _parse_arrays(texts, inner_type(kind))
    return texts.to_frame("text").select(_parsed(pl.col("text"), kind)).to_series().alias(texts.name)


def _parsed(text: pl.Expr, kind: pl.DataType) -> pl.Expr:
    match kind:
        case pl.String():
            return text
        case pl.Boolean():
            return pl.when(text.is_in(("t", "f"))).then(text == "t")
        case pl.Binary():
            return text.str.slice(2).str.decode("hex", strict=False)
        case pl.Datetime():
            time = _clamped(text.str.strip_suffix("+00"), FIRST_MOMENT, LAST_MOMENT)
            parsed = time.str.to_datetime(_TIME, time_unit="us", strict=False)
            return parsed if kind.time_zone is None else parsed.dt.replace_time_zone("UTC")
        case pl.Date():
            return _clamped(text, FIRST_MOMENT[:10], LAST_MOMENT[:10]).str.to_date(_DAY, strict=False)
        case pl.Decimal():
            # A number with more decimal places would be rounded.
            places = text.str.extract(r"\.(\d*?)0*$").str.len_chars().fill_null(0)
            return pl.when(places <= kind.scale).then(text).cast(kind, strict=False)
        case _:
            return text.cast(kind, strict=False)


def _clamped(text: pl.Expr, first: str, last: str) -> pl.Expr:
    before, after = text.str.contains(_BEFORE), text.str.contains(_AFTER)
    return pl.when(before).then(pl.lit(first)).when(after).then(pl.lit(last)).otherwise(text)


def _parse_arrays(texts: pl.Series, kind: pl.DataType) -> pl.Series:
    """Arrays as lists; null for an array with an item that is not a value of the type."""
    items, item = pl.col("items"), pl.element()
    broken = _parsed(item, kind).is_null() & item.is_not_null()
    if isinstance(kind, pl.Decimal):
        broken &= item != "NaN"
    lists = pl.when(~items.list.eval(broken).list.any()).then(items.list.eval(_parsed(item, kind)))
    return _items(texts).to_frame("items").select(lists).to_series().alias(texts.name)


def _items(texts: pl.Series) -> pl.Series:
    """The items of each array as texts; null for an array of arrays."""
    inside = texts.str.replace(_BOUNDS, "").str.strip_prefix("{").str.strip_suffix("}")
    text, item = pl.col("text"), pl.element()
    if inside.str.contains(_QUOTED).any():
        plain = item.str.slice(1, item.str.len_chars() - 2).str.replace_all(_ESCAPED, "$1")
        found = text.str.extract_all(_ITEM).list.eval(
            pl.when(item.str.starts_with('"')).then(plain).when(item != "NULL").then(item)
        )
    else:
        # Without quotes and escapes splitting takes half the time.
        split = pl.when(text == "").then(pl.lit([], pl.List(pl.String))).otherwise(text.str.split(","))
        found = split.list.eval(item.replace({"NULL": None}))
    return inside.to_frame("text").select(pl.when(~text.str.starts_with("{")).then(found)).to_series()
