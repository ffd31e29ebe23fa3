"""Which window a time falls into: starts and ends as expressions over integer microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import polars as pl

HOUR = 3_600_000_000


class Windows(Protocol):
    """Windows without overlap, each known by its start."""

    def start(self, time: pl.Expr) -> pl.Expr:
        """The start of the window that a time falls into."""

    def end(self, start: pl.Expr) -> pl.Expr:
        """The end of the window with this start."""


@dataclass(frozen=True, slots=True)
class FixedWindows:
    """Windows of one length, ``[start, end)``, aligned to the epoch and moved by an offset.

    >>> windows = FixedWindows(size=10, offset=3)
    >>> pl.select(windows.start(pl.lit(12)), windows.end(pl.lit(3)).alias("end")).row(0)
    (3, 13)
    """

    size: int
    offset: int = 0

    def start(self, time: pl.Expr) -> pl.Expr:
        """The start of the window that a time falls into."""
        return (time - self.offset) // self.size * self.size + self.offset

    def end(self, start: pl.Expr) -> pl.Expr:
        """The end of the window with this start."""
        return start + self.size


@dataclass(frozen=True, slots=True)
class CalendarDays:
    """Windows of whole days as a time zone's calendar counts them: 23 or 25 hours when daylight saving changes."""

    days: int
    zone: str

    def start(self, time: pl.Expr) -> pl.Expr:
        """Midnight of the day (or of the first of the days) that a time falls into."""
        return self._midnight(self._day(time) // self.days * self.days)

    def end(self, start: pl.Expr) -> pl.Expr:
        """Midnight after the last of the days."""
        return self._midnight(self._day(start) + self.days)

    def _day(self, time: pl.Expr) -> pl.Expr:
        moment = time.cast(pl.Datetime("us")).dt.replace_time_zone("UTC").dt.convert_time_zone(self.zone)
        return moment.dt.date().cast(pl.Int32)

    def _midnight(self, day: pl.Expr) -> pl.Expr:
        midnight = day.cast(pl.Date).cast(pl.Datetime("us"))
        # Where clocks jump over midnight the day begins at the jump, 24 hours after the midnight before.
        day_before = self._moment(midnight - pl.duration(days=1)) + 24 * HOUR
        return pl.coalesce(self._moment(midnight), day_before)

    def _moment(self, local: pl.Expr) -> pl.Expr:
        """The moment at which clocks of the zone show a time; null when they never do."""
        zoned = local.dt.replace_time_zone(self.zone, ambiguous="earliest", non_existent="null")
        return zoned.dt.convert_time_zone("UTC").dt.epoch("us")
