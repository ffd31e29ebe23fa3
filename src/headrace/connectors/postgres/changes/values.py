"""Values as PostgreSQL writes them, a whole column at a time, as values of a declared type."""

from __future__ import annotations

import polars as pl

from headrace.connectors.base.decoding import inner_type
from headrace.connectors.postgres.changes.arrays import put_together, split_arrays

FIRST_MOMENT, LAST_MOMENT = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
"""What stands for times before and after all that calendars here can say, as PostgreSQL's infinities."""
_TIME = "%Y-%m-%d %H:%M:%S%.f"
_DAY = "%Y-%m-%d"
_BEFORE = r"^-infinity$| BC$"
_AFTER = r"^infinity$|^\d{5,}-"


def converted(texts: pl.Series, kind: pl.DataType) -> pl.Series:
    """The column of a declared type; null where a text is no value of it.

    >>> converted(pl.Series(["t", None, "f"]), pl.Boolean()).to_list()
    [True, None, False]
    >>> converted(pl.Series(["2026-01-01 10:00:00.5+00", "infinity"]), pl.Datetime("us", "UTC")).dt.year().to_list()
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
            # A number with more places would be rounded.
            places = texts.str.extract(r"\.(\d*?)0*$").str.len_chars().fill_null(0)
            return texts.set(places > kind.scale, None).cast(kind, strict=False)
        case pl.List():
            items, lengths = split_arrays(texts)
            values = converted(items, inner_type(kind))
            lists = put_together(values, lengths)
            broken = put_together(unreadable(items, values), lengths).list.any()
            return lists.set(broken.fill_null(False), None) if broken.any() else lists
    return texts.cast(kind, strict=False)


def unreadable(texts: pl.Series, values: pl.Series) -> pl.Series:
    """Which texts are no values of the column's type; a number that is none (NaN) is null in a decimal column.

    >>> texts = pl.Series(["1.5", "NaN", "x"])
    >>> unreadable(texts, converted(texts, pl.Decimal(5, 2))).to_list()
    [False, False, True]
    """
    lost = values.is_null() & texts.is_not_null()
    return lost & (texts != "NaN").fill_null(True) if isinstance(values.dtype, pl.Decimal) else lost


def _clamped(texts: pl.Series, last: str, first: str) -> pl.Series:
    frame = texts.to_frame("text")
    after, before = pl.col("text").str.contains(_AFTER), pl.col("text").str.contains(_BEFORE)
    told = pl.when(before).then(pl.lit(first)).when(after).then(pl.lit(last)).otherwise("text")
    return frame.select(told.alias("text")).to_series()
