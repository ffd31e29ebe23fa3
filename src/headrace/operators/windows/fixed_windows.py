"""The steps with fixed windows: tumbling, hopping and cumulating."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from headrace.durations import MICROSECONDS, Duration, microseconds, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.keys import Key, key_columns, said_key
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.assigners import CumulatingWindows, FixedWindows, HoppingWindows, Windows
from headrace.operators.windows.calendar import MONDAY, CalendarDays, CalendarMonths, is_known, months_of
from headrace.operators.windows.emission import ACCUMULATING
from headrace.operators.windows.fixed_window_operator import FixedWindowOperator
from headrace.operators.windows.pane_operator import PaneOperator
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


@dataclass(frozen=True, kw_only=True, repr=False)
class OverlappingWindowStep(WindowStep):
    """A kind of windows in which a row belongs to several."""

    size: int
    offset: int

    @property
    @abstractmethod
    def _lengths(self) -> Mapping[str, int]:
        """The lengths that make the windows, by the author's names."""

    @property
    def combines(self) -> bool:
        """Rows of a key and pane become one before they travel."""
        return True

    @property
    def horizon(self) -> int:
        """How far apart in event time rows of one result may be."""
        return self.size

    @property
    def _shape(self) -> Mapping[str, object]:
        return {**self._lengths, "offset": self.offset, "state": self._kept_by}

    @property
    def _arguments(self) -> Mapping[str, object]:
        lengths = {name: spoken(length) for name, length in self._lengths.items()}
        return {**lengths, "key": said_key(self.key), **({"offset": spoken(self.offset)} if self.offset else {})}

    @property
    def _kept_by(self) -> Literal["pane", "window"]:
        """Previews and results that do not replace each other belong to single windows, not to what these share."""
        return "window" if self.emission.previews or self.accumulation != ACCUMULATING else "pane"

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words."""
        if self._kept_by == "window":
            return super().state_description
        return f"a row for each key and pane, {self._until('the last window that holds it')}"

    def _over(self, windows: Windows, aggregation: Aggregation, lateness: Lateness) -> Operator:
        if self._kept_by == "pane":
            return PaneOperator(self.name, aggregation, windows, lateness)
        return FixedWindowOperator(self.name, aggregation, windows, self.emission, lateness, self.accumulation)


@dataclass(frozen=True, kw_only=True, repr=False)
class Hopping(OverlappingWindowStep):
    """Fixed windows that overlap."""

    kind = "hopping"

    every: int

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        return self._over(HoppingWindows(self.size, self.every, self.offset), aggregation, lateness)

    @property
    def _lengths(self) -> Mapping[str, int]:
        return {"size": self.size, "every": self.every}


def hopping(name: str, *, size: Duration, every: Duration, key: Key, offset: Duration | None = None) -> Hopping:
    """Windows of one length that begin every so often; a row belongs to every window that covers it.

    >>> hopping("busy", size="1 hour", every="1 minute", key="shop").agg(rows="count(*)")
    hr.hopping('busy', size='1 hour', every='1 minute', key='shop').agg(rows='count(*)').emit(hr.on_close())
    """
    check_name("step", name)
    length = positive_microseconds(size, argument="size")
    hop = positive_microseconds(every, argument="every")
    moved = 0 if offset is None else microseconds(offset, argument="offset")
    if hop > length:
        raise DefinitionError(
            "HOP_LONGER_THAN_WINDOW",
            f"window {name!r}: every={every!r} is longer than size={size!r}, so rows between two windows would be in "
            "none. Make every at most as long as size.",
        )
    if not -hop < moved < hop:
        raise DefinitionError(
            "WINDOW_OFFSET_TOO_LONG",
            f"window {name!r}: offset={offset!r} is not shorter than every={every!r}. Use the offset within one hop.",
        )
    return Hopping(name=name, key=key_columns(key), size=length, every=hop, offset=moved)


@dataclass(frozen=True, kw_only=True, repr=False)
class Cumulating(OverlappingWindowStep):
    """Growing windows with a common beginning."""

    kind = "cumulating"

    step: int

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        return self._over(CumulatingWindows(self.step, self.size, self.offset), aggregation, lateness)

    @property
    def _lengths(self) -> Mapping[str, int]:
        return {"step": self.step, "size": self.size}


def cumulating(name: str, *, step: Duration, size: Duration, key: Key, offset: Duration | None = None) -> Cumulating:
    """Windows that begin together and grow by a step up to a full size, as in "so far today, every hour".

    >>> cumulating("so_far", step="1 hour", size="1 day", key="shop").agg(rows="count(*)")
    hr.cumulating('so_far', step='1 hour', size='1 day', key='shop').agg(rows='count(*)').emit(hr.on_close())
    """
    check_name("step", name)
    growth = positive_microseconds(step, argument="step")
    length = positive_microseconds(size, argument="size")
    moved = 0 if offset is None else microseconds(offset, argument="offset")
    if length % growth:
        raise DefinitionError(
            "STEP_NOT_IN_SIZE",
            f"window {name!r}: size={size!r} is not a whole number of steps of {step!r}. Choose a step that divides "
            "the size.",
        )
    if not -length < moved < length:
        raise DefinitionError(
            "WINDOW_OFFSET_TOO_LONG",
            f"window {name!r}: offset={offset!r} is not shorter than size={size!r}. Use the offset within one window.",
        )
    return Cumulating(name=name, key=key_columns(key), step=growth, size=length, offset=moved)
