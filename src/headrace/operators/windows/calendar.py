"""Windows that follow a calendar: days, weeks and months of a time zone, daylight saving included."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from headrace.durations import MICROSECONDS, Duration, not_too_long
from headrace.operators.windows.assigners import Windows

HOUR = MICROSECONDS["hour"]
MONDAY = 4
"""Days are counted from 1 January 1970, a Thursday; the first Monday after it is day 4."""
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_MONTHS_SAID = re.compile(r"\s*(\d+)\s*(month|quarter|year)s?\s*", re.IGNORECASE)


def months_of(size: Duration) -> int:
    """The number of months in a size; 0 if it is given in other units.

    >>> months_of("1 quarter"), months_of("1 day")
    (3, 0)
    """
    said = _MONTHS_SAID.fullmatch(size) if isinstance(size, str) else None
    if said is None:
        return 0
    months = int(said[1]) * _MONTHS[said[2].lower()]
    not_too_long(months * 31 * MICROSECONDS["day"], size, argument="size")
    return months


def is_known(zone: str) -> bool:
    """Whether both Python and Polars know a time zone.

    >>> is_known("Europe/Berlin"), is_known("Europe")
    (True, False)
    """
    # Python accepts names that Polars does not, such as 'localtime', and Polars accepts '' and '+02:00'.
    try:
        ZoneInfo(zone)
        pl.select(_local(pl.lit(0), zone))
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError, pl.exceptions.ComputeError):
        return False
    return True


@dataclass(frozen=True)
class CalendarWindows(Windows):
    """Windows of whole calendar units, counted as numbers, by the clocks of a zone; ``offset`` moves their start."""

    units: int
    zone: str
    offset: int = 0

    def pane(self, time: pl.Expr) -> pl.Expr:
        first = self._first_of(self._local(time))
        # On the day of a clock change, local clocks may show a start too early, or show the time before it twice.
        early, over = self._moment(first) > time, self._moment(first + self.units) <= time
        start = pl.when(early).then(first - self.units).when(over).then(first + self.units).otherwise(first)
        return self._moment(start + self.units)

    def start(self, end: pl.Expr) -> pl.Expr:
        # In the middle of its last day a window is far from any clock change.
        return self._moment(self._first_of(self._local(end - 12 * HOUR)))

    def _local(self, time: pl.Expr) -> pl.Expr:
        return _local(time, self.zone) - pl.duration(microseconds=self.offset)

    def _moment(self, number: pl.Expr) -> pl.Expr:
        return _moment(self._date(number) + pl.duration(microseconds=self.offset), self.zone)

    @abstractmethod
    def _first_of(self, local: pl.Expr) -> pl.Expr:
        """The first unit of the window that a local time falls into."""

    @abstractmethod
    def _date(self, number: pl.Expr) -> pl.Expr:
        """The local time at which a unit begins."""


@dataclass(frozen=True)
class CalendarDays(CalendarWindows):
    """Windows of whole days, 23 or 25 hours long when daylight saving time changes.

    Days are counted from ``first_day`` on, so that weeks begin on Mondays.
    """

    first_day: int = 0

    def _first_of(self, local: pl.Expr) -> pl.Expr:
        return (local.dt.date().cast(pl.Int32) - self.first_day) // self.units * self.units + self.first_day

    def _date(self, number: pl.Expr) -> pl.Expr:
        return number.cast(pl.Date).cast(pl.Datetime("us"))


@dataclass(frozen=True)
class CalendarMonths(CalendarWindows):
    """Windows of whole months, counted from the year 0; three months are quarters, twelve are years."""

    def _first_of(self, local: pl.Expr) -> pl.Expr:
        month = local.dt.year().cast(pl.Int32) * 12 + local.dt.month().cast(pl.Int32) - 1
        return month // self.units * self.units

    def _date(self, number: pl.Expr) -> pl.Expr:
        return pl.datetime(number // 12, number % 12 + 1, 1, time_unit="us")


def _local(time: pl.Expr, zone: str) -> pl.Expr:
    """The local time of a zone."""
    moment = time.cast(pl.Datetime("us")).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return moment.dt.replace_time_zone(None)


def _moment(local: pl.Expr, zone: str) -> pl.Expr:
    """The first time at which local clocks show a time; one that they skip is shifted by the length of the gap.

    >>> from datetime import datetime
    >>> skipped = pl.lit(datetime(2026, 3, 29, 2, 30))
    >>> pl.select(_local(_moment(skipped, "Europe/Berlin"), "Europe/Berlin")).item()
    datetime.datetime(2026, 3, 29, 3, 30)
    """
    # As in Java, and so in Flink: 24 hours after clocks showed the same time on the day before.
    day_before = _shown(local - pl.duration(days=1), zone) + 24 * HOUR
    return pl.coalesce(_shown(local, zone), day_before)


def _shown(local: pl.Expr, zone: str) -> pl.Expr:
    zoned = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return zoned.dt.convert_time_zone("UTC").dt.epoch("us")
