"""Hopping windows as an author says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.durations import Duration, microseconds, positive_microseconds
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.keys import Key, key_columns
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.fixed.assigners import HoppingWindows
from headrace.operators.windows.fixed.overlapping import OverlappingWindowStep
from headrace.wheel.operator import Operator


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
