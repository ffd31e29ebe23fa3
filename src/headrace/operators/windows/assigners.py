"""Window assigners: which windows a time falls into, as expressions over integer microseconds."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import gcd
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from headrace.durations import MICROSECONDS, Duration, not_too_long
from headrace.errors import DefinitionError
from headrace.event_time.strategy import BEGINNING, END
from headrace.state.order_ranges import NO_SPAN, Span


class Windows(ABC):
    """Windows ``[start, end)``, identified by their end, and the panes that they share.

    A pane is an interval that no window divides, identified by its end too; windows without overlap are panes.
    """

    overlapping = False
    size: int
    """The length of a window; of calendar windows that of the longest."""
    offset: int

    @abstractmethod
    def pane(self, time: pl.Expr) -> pl.Expr:
        """The pane that a time falls into."""

    def start(self, end: pl.Expr) -> pl.Expr:
        """The start of a window."""
        return end - self.size

    def first(self, pane: pl.Expr) -> pl.Expr:
        """The first window, by its end, that holds a pane."""
        return pane

    def last(self, pane: pl.Expr) -> pl.Expr:
        """The last window that holds a pane."""
        return pane

    def next_close(self, time: int) -> int:
        """The end of the first window that ends after a time."""
        if not BEGINNING < time < END:
            return time
        return int(pl.select(self.first(self.pane(pl.lit(time, pl.Int64)))).item())

    def closing(self, after: int, until: int) -> Span:
        """The times of all windows that end after a time and not after another."""
        following = self.next_close(after)
        return (following - self.size, until - 1) if following <= until else NO_SPAN

    def closed(self, panes: pl.Series, until: int) -> Span:
        """The times of all windows that hold one of these panes, for each pane of which one has ended by a time."""
        pane = pl.col(panes.name)
        start, end = self.start(self.first(pane)).alias("start"), self.last(pane).alias("end")
        times = panes.to_frame().filter(self.first(pane) <= until).select(start, end)
        return times["start"].to_numpy(), times["end"].to_numpy() - 1

    def all(self, pane: pl.Expr) -> pl.Expr:
        """Every window that holds a pane, as a list."""
        return pl.concat_list(pane)

    def _aligned(self, time: pl.Expr, length: int) -> pl.Expr:
        return ((time - self.offset) // length + 1) * length + self.offset


@dataclass(frozen=True)
class FixedWindows(Windows):
    """Windows of one length, aligned to the epoch and moved by an offset.

    >>> windows = FixedWindows(size=10, offset=3)
    >>> pl.select(windows.pane(pl.lit(12)), windows.start(pl.lit(13)).alias("start")).row(0)
    (13, 3)
    """

    size: int
    offset: int = 0

    def pane(self, time: pl.Expr) -> pl.Expr:
        return self._aligned(time, self.size)


@dataclass(frozen=True)
class HoppingWindows(Windows):
    """Windows of one size that start at regular intervals; their panes are as long as the greatest common divisor.

    >>> windows = HoppingWindows(size=10, every=4)
    >>> pl.select(windows.all(windows.pane(pl.lit(9)))).item().to_list()
    [10, 14, 18]
    """

    size: int
    every: int
    offset: int = 0
    overlapping = True

    def pane(self, time: pl.Expr) -> pl.Expr:
        return self._aligned(time, gcd(self.size, self.every))

    def first(self, pane: pl.Expr) -> pl.Expr:
        moved = self.offset + self.size
        return -((moved - pane) // self.every) * self.every + moved

    def last(self, pane: pl.Expr) -> pl.Expr:
        beginning = pane - gcd(self.size, self.every)
        return (beginning - self.offset) // self.every * self.every + self.offset + self.size

    def all(self, pane: pl.Expr) -> pl.Expr:
        return pl.int_ranges(self.first(pane), self.last(pane) + 1, step=self.every)


@dataclass(frozen=True)
class CumulatingWindows(Windows):
    """Windows with a common start that end step by step, up to a full size; then the next start together.

    >>> windows = CumulatingWindows(step=5, size=15)
    >>> pl.select(windows.all(windows.pane(pl.lit(7)))).item().to_list()
    [10, 15]
    """

    step: int
    size: int
    offset: int = 0
    overlapping = True

    def pane(self, time: pl.Expr) -> pl.Expr:
        return self._aligned(time, self.step)

    def start(self, end: pl.Expr) -> pl.Expr:
        return (end - 1 - self.offset) // self.size * self.size + self.offset

    def last(self, pane: pl.Expr) -> pl.Expr:
        return self.start(pane) + self.size

    def all(self, pane: pl.Expr) -> pl.Expr:
        return pl.int_ranges(pane, self.last(pane) + 1, step=self.step)


HOUR, DAY, WEEK = (MICROSECONDS[unit] for unit in ("hour", "day", "week"))
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
    not_too_long(months * 31 * DAY, size, argument="size")
    return months


@dataclass(frozen=True)
class CalendarWindows(Windows):
    """Windows of whole days, weeks or months by the clocks of a zone; ``offset`` moves their start.

    Days are 23 or 25 hours long when daylight saving time changes. Weeks begin on Mondays.
    """

    size: int
    every: str
    """The size, as Polars writes it: ``1d``, ``2w`` or ``3mo``."""
    zone: str
    offset: int = 0
    shift: str = "0d"
    """How much of a window lies before 1970, where Polars begins to count; months are counted from the year 0."""

    def pane(self, time: pl.Expr) -> pl.Expr:
        first = self._first_of(self._local(time))
        before, following = first.dt.offset_by(f"-{self.every}"), first.dt.offset_by(self.every)
        # On the day of a clock change, local clocks may show a start too early, or show the time before it twice.
        early, over = self._moment(first) > time, self._moment(following) <= time
        start = pl.when(early).then(before).when(over).then(following).otherwise(first)
        return self._moment(start.dt.offset_by(self.every))

    def start(self, end: pl.Expr) -> pl.Expr:
        # In the middle of its last day a window is far from any clock change.
        return self._moment(self._first_of(self._local(end - 12 * HOUR)))

    def _local(self, time: pl.Expr) -> pl.Expr:
        return _local(time, self.zone) - pl.duration(microseconds=self.offset)

    def _first_of(self, local: pl.Expr) -> pl.Expr:
        return local.dt.offset_by(self.shift).dt.truncate(self.every).dt.offset_by(f"-{self.shift}")

    def _moment(self, begins: pl.Expr) -> pl.Expr:
        """When a window begins; a local time that clocks skip is shifted by the length of the gap."""
        local = begins + pl.duration(microseconds=self.offset)
        # As in Java, and so in Flink: 24 hours after clocks showed the same time on the day before.
        day_before = _shown(local - pl.duration(days=1), self.zone) + 24 * HOUR
        return pl.coalesce(_shown(local, self.zone), day_before)


def _local(time: pl.Expr, zone: str) -> pl.Expr:
    moment = time.cast(pl.Datetime("us")).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return moment.dt.replace_time_zone(None)


def _shown(local: pl.Expr, zone: str) -> pl.Expr:
    """The first time at which local clocks show a time; null if they skip it."""
    zoned = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return zoned.dt.convert_time_zone("UTC").dt.epoch("us")


def _is_known(zone: str) -> bool:
    # Python accepts names that Polars does not, such as 'localtime', and Polars accepts '' and '+02:00'.
    try:
        ZoneInfo(zone)
        pl.select(_local(pl.lit(0), zone))
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError, pl.exceptions.ComputeError):
        return False
    return True


def tumbling_windows(name: str, size: Duration, length: int, offset: int, time_zone: str | None) -> Windows:
    """Windows without overlap: of one length or, with a time zone, of whole days, weeks or months."""
    months = months_of(size)
    if time_zone is None and not months:
        return FixedWindows(length, offset)
    if time_zone is None or (not months and length % DAY):
        raise DefinitionError(
            "CALENDAR_NEEDS_DAYS",
            f"window {name!r}: size={str(size)!r} with time_zone={time_zone!r}. Calendar windows need a time zone and "
            "a size of whole days, weeks or months. Use size='1 day' or '1 month' with time_zone='Europe/Berlin', or "
            "leave time_zone out.",
        )
    if not _is_known(time_zone):
        raise DefinitionError(
            "TIME_ZONE_UNKNOWN",
            f"window {name!r}: time_zone={time_zone!r} is not known. Use a name such as 'Europe/Berlin'.",
        )
    if months:
        return CalendarWindows(months * 31 * DAY, f"{months}mo", time_zone, offset, shift=f"{1970 * 12 % months}mo")
    every = f"{length // DAY}d" if length % WEEK else f"{length // WEEK}w"
    return CalendarWindows(length, every, time_zone, offset)
