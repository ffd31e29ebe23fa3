"""Windows that follow a calendar: days, weeks and months of a time zone, daylight saving included."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from headrace.durations import MICROSECONDS, Duration, not_too_long
from headrace.operators.windows.assigners import SeparateWindows

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
class CalendarDays(SeparateWindows):
    """Windows of whole days as clocks of a zone show them: 23 or 25 hours long when daylight saving changes.

    The count of days begins with ``first_day``, so that weeks begin on Mondays. ``offset`` moves the beginning of a
    day, as the zone's clocks show it.
    """

    days: int
    zone: str
    first_day: int = 0
    offset: int = 0

    def pane(self, time: pl.Expr) -> pl.Expr:
        """The end of the window that a time falls into: it begins on the last first day that is not after the time."""
        first = self._first_day_of(_local(time, self.zone) - pl.duration(microseconds=self.offset))
        return self._moment(_holding(time, first, self.days, self._moment) + self.days)

    def start(self, end: pl.Expr) -> pl.Expr:
        """The start of the window with this end."""
        # In the middle of its last day a window is far from any change of the clocks.
        inside = _local(end - 12 * HOUR, self.zone) - pl.duration(microseconds=self.offset)
        return self._moment(self._first_day_of(inside))

    def _first_day_of(self, local: pl.Expr) -> pl.Expr:
        day = local.dt.date().cast(pl.Int32)
        return (day - self.first_day) // self.days * self.days + self.first_day

    def _moment(self, day: pl.Expr) -> pl.Expr:
        return _moment(day.cast(pl.Date).cast(pl.Datetime("us")) + pl.duration(microseconds=self.offset), self.zone)


@dataclass(frozen=True)
class CalendarMonths(SeparateWindows):
    """Windows of whole months as clocks of a zone show them; three months are quarters, twelve are years."""

    months: int
    zone: str
    offset: int = 0

    def pane(self, time: pl.Expr) -> pl.Expr:
        """The end of the window that a time falls into."""
        first = self._first_month_of(_local(time, self.zone) - pl.duration(microseconds=self.offset))
        return self._moment(_holding(time, first, self.months, self._moment) + self.months)

    def start(self, end: pl.Expr) -> pl.Expr:
        """The start of the window with this end."""
        inside = _local(end - 12 * HOUR, self.zone) - pl.duration(microseconds=self.offset)
        return self._moment(self._first_month_of(inside))

    def _first_month_of(self, local: pl.Expr) -> pl.Expr:
        """Months since the year 0."""
        month = local.dt.year().cast(pl.Int32) * 12 + local.dt.month().cast(pl.Int32) - 1
        return month // self.months * self.months

    def _moment(self, month: pl.Expr) -> pl.Expr:
        first = pl.datetime(month // 12, month % 12 + 1, 1, time_unit="us")
        return _moment(first + pl.duration(microseconds=self.offset), self.zone)


def _holding(time: pl.Expr, first: pl.Expr, size: int, moment: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
    """The start of the window that a time falls into, given the one by local clocks, ``first``.

    On the day of a clock change, local clocks may show a start too early, or show the time before it twice.
    """
    early, over = moment(first) > time, moment(first + size) <= time
    return pl.when(early).then(first - size).when(over).then(first + size).otherwise(first)


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
