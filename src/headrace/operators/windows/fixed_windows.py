"""The steps with fixed windows: tumbling, hopping and cumulating."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from headrace.durations import Duration, microseconds, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.keys import Key, key_argument, key_columns
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.assigners import (
    DAY,
    CumulatingWindows,
    HoppingWindows,
    Windows,
    months_of,
    tumbling_windows,
)
from headrace.operators.windows.emission import ACCUMULATING
from headrace.operators.windows.fixed_window_operator import FixedWindowOperator, PaneOperator
from headrace.operators.windows.window_step import WindowStep
from headrace.stability import stable
from headrace.wheel.operator import Operator


@dataclass(frozen=True, kw_only=True, repr=False)
class FixedWindowStep(WindowStep):
    """Windows whose bounds do not depend on the rows."""

    combines = True

    windows: Windows

    @property
    def _state_by(self) -> Literal["pane", "window"]:
        """Whether the state has a row for each window, or for each pane that windows share."""
        # Previews, and results that do not replace each other, belong to single windows and cannot share panes.
        alone = self.emission.previews or self.emission.counts or self.accumulation != ACCUMULATING
        return "pane" if self.windows.overlapping and not alone else "window"

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        if self.emission.late is not None and not lateness.correctable:
            message = f".emit({self.emission!r}) corrects windows, but .late({lateness!r}) does not take late rows"
            raise self._wrong(
                "CORRECTIONS_MISSING", f"{message}. Use .late(hr.update_for('1 hour')), or leave out late=."
            )
        given = (aggregation, lateness, self.emission, self.accumulation, self.windows)
        return PaneOperator(*given) if self._state_by == "pane" else FixedWindowOperator(*given)

    @property
    def state_description(self) -> str:
        if self._state_by == "window":
            return super().state_description
        return f"a row for each key and pane, {self._until('the last window that holds it')}"

    @property
    def horizon(self) -> int:
        return self.windows.size

    @property
    def _offset_argument(self) -> dict[str, object]:
        return {"offset": spoken(self.windows.offset)} if self.windows.offset else {}


@dataclass(frozen=True, kw_only=True, repr=False)
class Tumbling(FixedWindowStep):
    """Fixed windows without overlap."""

    kind = "tumbling"

    size: Duration
    time_zone: str | None

    @property
    def _arguments(self) -> Mapping[str, object]:
        zone = {} if self.time_zone is None else {"time_zone": self.time_zone}
        return {"size": self.size, "key": key_argument(self.key), **self._offset_argument, **zone}


@stable
def tumbling(
    name: str, *, size: Duration, key: Key, offset: Duration | None = None, time_zone: str | None = None
) -> Tumbling:
    """Fixed windows ``[start, end)`` without overlap; with a time zone, days, weeks and months of its calendar.

    Weeks begin on Mondays. ``offset`` moves the start of every window. ``key=None`` puts all rows into one group.

    >>> tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)")
    hr.tumbling('hourly', size='1 hour', key='account').agg(spent='sum(amount)').emit(hr.on_close())
    """
    months = months_of(size)
    length = months * 28 * DAY if months else positive_microseconds(size, argument="size")
    moved = _offset(name, offset, length, limit=f"size={size!r}")
    return Tumbling(
        name=name,
        key=key_columns(key),
        size=size if months else spoken(length),
        time_zone=time_zone,
        windows=tumbling_windows(name, size, length, moved, time_zone),
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class OverlappingWindowStep(FixedWindowStep):
    """Fixed windows in which a row belongs to several."""

    windows: HoppingWindows | CumulatingWindows

    @property
    def _identity(self) -> Mapping[str, object]:
        return {**super()._identity, "state": self._state_by}

    @property
    def _arguments(self) -> Mapping[str, object]:
        lengths = {name: spoken(length) for name, length in asdict(self.windows).items() if name != "offset"}
        return {**lengths, "key": key_argument(self.key), **self._offset_argument}


class Hopping(OverlappingWindowStep):
    """Fixed windows of one size that start at regular intervals and overlap."""

    kind = "hopping"


@stable
def hopping(name: str, *, size: Duration, every: Duration, key: Key, offset: Duration | None = None) -> Hopping:
    """Windows of one size that start at regular intervals; a row belongs to every window that covers it.

    >>> hopping("busy", size="1 hour", every="1 minute", key="shop").agg(rows="count(*)")
    hr.hopping('busy', size='1 hour', every='1 minute', key='shop').agg(rows='count(*)').emit(hr.on_close())
    """
    length = positive_microseconds(size, argument="size")
    hop = positive_microseconds(every, argument="every")
    if hop > length:
        raise DefinitionError(
            "HOP_LONGER_THAN_WINDOW",
            f"window {name!r}: every={every!r} is longer than size={size!r}: some rows would be in no window. "
            "Shorten it.",
        )
    moved = _offset(name, offset, hop, limit=f"every={every!r}")
    return Hopping(name=name, key=key_columns(key), windows=HoppingWindows(length, hop, moved))


class Cumulating(OverlappingWindowStep):
    """Windows with a common start that grow step by step."""

    kind = "cumulating"


@stable
def cumulating(name: str, *, step: Duration, size: Duration, key: Key, offset: Duration | None = None) -> Cumulating:
    """Windows with a common start that grow by a step up to a full size, as in "so far today, every hour".

    >>> cumulating("so_far", step="1 hour", size="1 day", key="shop").agg(rows="count(*)")
    hr.cumulating('so_far', step='1 hour', size='1 day', key='shop').agg(rows='count(*)').emit(hr.on_close())
    """
    growth = positive_microseconds(step, argument="step")
    length = positive_microseconds(size, argument="size")
    if length % growth:
        raise DefinitionError(
            "STEP_NOT_IN_SIZE",
            f"window {name!r}: size={size!r} is not a multiple of step={step!r}. Choose a step that divides the size.",
        )
    moved = _offset(name, offset, length, limit=f"size={size!r}")
    return Cumulating(name=name, key=key_columns(key), windows=CumulatingWindows(growth, length, moved))


def _offset(name: str, offset: Duration | None, length: int, *, limit: str) -> int:
    moved = 0 if offset is None else microseconds(offset, argument="offset")
    if not -length < moved < length:
        raise DefinitionError(
            "WINDOW_OFFSET_TOO_LONG",
            f"window {name!r}: offset={offset!r} is not shorter than {limit}. Choose a shorter one.",
        )
    return moved
