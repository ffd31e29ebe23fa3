"""Times and dates as Debezium writes them; what lies outside of the years 1 to 9999 is their first or last moment."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from headrace.connectors.base.timestamps import parse_dates, parse_timestamps
from headrace.connectors.debezium.changes import Times

_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
# Infinite, or a year that ISO 8601 writes with a sign or more than four digits.
_BEFORE = r"^-(?:infinity$|\d{4,}-)"
_AFTER = r"^(?:infinity$|\+?\d{5,}-)"


def moments(text: pl.Series, declared: pl.Datetime, unit: Times) -> pl.Series:
    """Times given as numbers of a unit or in ISO 8601; null where the text is neither.

    >>> moments(pl.Series(["0", "9223371331200000000"]), pl.Datetime("us"), "microseconds").dt.year().to_list()
    [1970, 9999]
    """
    number = text.cast(pl.Int64, strict=False)
    match unit:
        case "milliseconds":
            number = number.clip(_FIRST // 1000, _LAST // 1000 + 1) * 1000
        case "nanoseconds":
            number = number // 1000
    zoned = declared.time_zone is not None
    return _whole(number, text, lambda each: parse_timestamps(each, zoned=zoned), _FIRST, _LAST).cast(declared)


def dates(text: pl.Series) -> pl.Series:
    """Dates given as days since 1970 or in ISO 8601; null where the text is neither.

    >>> dates(pl.Series(["20455", "2026-01-02", "infinity"])).dt.year().to_list()
    [2026, 2026, 9999]
    """
    days = _whole(text.cast(pl.Int64, strict=False), text, parse_dates, _FIRST_DAY, _LAST_DAY)
    return days.cast(pl.Int32).cast(pl.Date)


def _whole(
    number: pl.Series, text: pl.Series, parse: Callable[[pl.Series], pl.Series], first: int, last: int
) -> pl.Series:
    """Numbers between the first and the last, with those of texts that are none."""
    if number.null_count() > text.null_count():
        number = number.zip_with(number.is_not_null(), parse(text).to_physical().cast(pl.Int64))
    if number.null_count() > text.null_count():
        before, after = pl.col("text").str.contains(_BEFORE), pl.col("text").str.contains(_AFTER)
        beyond = pl.when(before).then(first).when(after).then(last).cast(pl.Int64)
        number = number.zip_with(number.is_not_null(), text.to_frame("text").select(beyond).to_series())
    return number.clip(first, last)
