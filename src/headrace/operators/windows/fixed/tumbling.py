"""Tumbling windows as an author says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from headrace.durations import MICROSECONDS, Duration, microseconds, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.keys import Key, key_columns, said_key
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.fixed.assigners import FixedWindows, Windows
from headrace.operators.windows.fixed.by_window import FixedWindowOperator
from headrace.operators.windows.fixed.calendar import MONDAY, CalendarDays, CalendarMonths, is_known, months_of
from headrace.operators.windows.window_step import WindowStep
from headrace.wheel.operator import Operator

DAY, WEEK = MICROSECONDS["day"], MICROSECONDS["week"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Tumbling(WindowStep):
    """Fixed windows without overlap."""

    kind = "tumbling"

    size: Duration
    offset: int
    time_zone: str | None
    windows: Windows
    longest: int
    """How long a window is at most: months differ."""

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        return FixedWindowOperator(self.name, aggregation, self.windows, self.emission, lateness, self.accumulation)

    @property
    def combines(self) -> bool:
        """Rows of a key and pane become one before they travel."""
        return True

    @property
    def horizon(self) -> int:
        """How far apart in event time rows of one result may be."""
        return self.longest

    @property
    def _shape(self) -> Mapping[str, object]:
        return {"size": self.size, "offset": self.offset, "time_zone": self.time_zone}

    @property
    def _arguments(self) -> Mapping[str, object]:
        offset = {"offset": spoken(self.offset)} if self.offset else {}
        zone = {} if self.time_zone is None else {"time_zone": self.time_zone}
        return {"size": self.size, "key": said_key(self.key), **offset, **zone}


def tumbling(
    name: str,
    *,
    size: Duration,
    key: Key,
    offset: Duration | None = None,
    time_zone: str | None = None,
) -> Tumbling:
    """Fixed windows ``[start, end)`` without overlap; with a time zone days, weeks and months of its calendar.

    Weeks begin on Mondays. ``offset`` moves the beginning of every window. ``key=None`` makes windows of all rows.

    >>> tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)")
    hr.tumbling('hourly', size='1 hour', key='account').agg(spent='sum(amount)').emit(hr.on_close())
    """
    check_name("step", name)
    moved = 0 if offset is None else microseconds(offset, argument="offset")
    months = months_of(size)
    length = months * 28 * DAY if months else positive_microseconds(size, argument="size")
    if not -length < moved < length:
        raise DefinitionError(
            "WINDOW_OFFSET_TOO_LONG",
            f"window {name!r}: offset={offset!r} is not shorter than size={size!r}. Use the offset within one window.",
        )
    windows = _windows(name, size, months, length, moved, time_zone)
    said = size if months else spoken(length)
    return Tumbling(
        name=name,
        key=key_columns(key),
        size=said,
        offset=moved,
        time_zone=time_zone,
        windows=windows,
        longest=months * 31 * DAY if months else length,
    )


def _windows(
    name: str, size: Duration | timedelta, months: int, length: int, offset: int, time_zone: str | None
) -> Windows:
    if time_zone is None and not months:
        return FixedWindows(length, offset)
    if time_zone is None or (not months and length % DAY):
        raise DefinitionError(
            "CALENDAR_NEEDS_DAYS",
            f"window {name!r}: size={str(size)!r} with time_zone={time_zone!r}. Windows that follow a calendar need a "
            "time zone and a size of whole days, weeks or months. Use size='1 day' or '1 month' with "
            "time_zone='Europe/Berlin', or leave time_zone out.",
        )
    if not is_known(time_zone):
        raise DefinitionError(
            "TIME_ZONE_UNKNOWN",
            f"window {name!r}: time_zone={time_zone!r} is not known. Use a name as in 'Europe/Berlin'.",
        )
    if months:
        return CalendarMonths(months, time_zone, offset)
    return CalendarDays(length // DAY, time_zone, MONDAY if length % WEEK == 0 else 0, offset)
