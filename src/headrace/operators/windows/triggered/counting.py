"""Counting windows as an author says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.keys import Key, key_columns
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.emission import AfterRows, Emission
from headrace.operators.windows.panes import DISCARDING, AccumulationMode
from headrace.operators.windows.triggered.by_trigger import TriggerOperator
from headrace.operators.windows.triggered.trigger_step import TriggeredWindowStep, time_to_live
from headrace.wheel.operator import Operator


@dataclass(frozen=True, kw_only=True, repr=False)
class Counting(TriggeredWindowStep):
    """Windows of so many rows of a key."""

    kind = "counting"

    rows: int

    def emit(self, emission: Emission) -> Self:
        """Not for counting windows: a window leaves when it is full."""
        raise DefinitionError(
            "EMISSION_UNKNOWN",
            f"window {self.name!r}: .emit({emission!r}) is not for counting windows, which leave when they are full. "
            "Leave it out, or use hr.global_window(...) with a trigger of its own.",
        )

    def panes(self, panes: AccumulationMode) -> Self:
        """Not for counting windows: a window leaves once."""
        raise DefinitionError(
            "PANES_UNKNOWN",
            f"window {self.name!r}: .panes({panes!r}) is not for counting windows, each of which leaves once. "
            "Leave it out, or use hr.global_window(...).",
        )

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        trigger = AfterRows(self.rows)
        return TriggerOperator(self.name, aggregation, trigger, self.ttl, DISCARDING, lateness, closing=True)

    @property
    def _shape(self) -> Mapping[str, object]:
        return {"rows": self.rows, "ttl": self.ttl}

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"rows": self.rows, **super()._arguments}


def counting(name: str, *, rows: int, key: Key, ttl: Duration | None = None, keep_forever: bool = False) -> Counting:
    """Every so many rows of a key are a window, in the order of event time.

    A key without rows for ``ttl`` is forgotten; its unfinished window then leaves with the rows it has.

    >>> counting("tens", rows=10, key="account", ttl="1 day").agg(spent="sum(amount)")
    hr.counting('tens', rows=10, key='account', ttl='1 day').agg(spent='sum(amount)')
    """
    check_name("step", name)
    if type(rows) is not int or rows < 1:
        raise DefinitionError(
            "WINDOW_WITHOUT_ROWS", f"window {name!r}: rows={rows!r} would never be full. Give a whole number from 1 on."
        )
    return Counting(name=name, key=key_columns(key), rows=rows, ttl=time_to_live(name, ttl, keep_forever))
