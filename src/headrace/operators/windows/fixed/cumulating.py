"""Cumulating windows as an author says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.durations import Duration, microseconds, positive_microseconds
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.keys import Key, key_columns
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.fixed.assigners import CumulatingWindows
from headrace.operators.windows.fixed.overlapping import OverlappingWindowStep
from headrace.wheel.operator import Operator


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
