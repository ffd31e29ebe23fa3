"""Global windows as an author says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.expressions import parse_condition
from headrace.graph import check_name
from headrace.keys import Key, key_columns
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.emission import AfterRows, Emission, Every, Trigger, When
from headrace.operators.windows.triggered.by_trigger import TriggerOperator
from headrace.operators.windows.triggered.trigger_step import TriggeredWindowStep, time_to_live
from headrace.wheel.operator import Operator


@dataclass(frozen=True, kw_only=True, repr=False)
class GlobalWindow(TriggeredWindowStep):
    """One window for each key, which never ends; a trigger says when its result is shown."""

    kind = "global_window"

    trigger: Trigger | None = None

    def emit(self, emission: Emission | Trigger) -> Self:
        """Choose the trigger; there is no default."""
        if isinstance(emission, Every) and emission.time == "processing":
            raise DefinitionError(
                "TRIGGER_BY_CLOCK",
                f"window {self.name!r}: .emit({emission!r}) would fire by the clock, but a global window takes its "
                "rows in the order of event time and fires in it. Add time='event'.",
            )
        if not isinstance(emission, AfterRows | Every | When):
            raise DefinitionError(
                "EMISSION_UNKNOWN",
                f"window {self.name!r}: .emit({emission!r}) is not for a window that never closes. Use {_TRIGGERS}.",
            )
        return replace(self, trigger=emission)

    @property
    def previews(self) -> bool:
        """Whether results replace each other; discarded ones stand for themselves."""
        return self.accumulation.kind != "discarding"

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        if self.trigger is None:
            raise DefinitionError(
                "EMISSION_MISSING",
                f"window {self.name!r} never closes and does not say when to emit, so nothing would leave before a key "
                f"is forgotten. Add .emit(...) with {_TRIGGERS}.",
            )
        if isinstance(self.trigger, When):
            parse_condition(self.trigger.condition.text, aggregation.schema)
        return TriggerOperator(self.name, aggregation, self.trigger, self.ttl, self.accumulation, lateness)

    @property
    def _shape(self) -> Mapping[str, object]:
        return {"ttl": self.ttl, "trigger": repr(self.trigger)}

    @property
    def _emits(self) -> str:
        return "" if self.trigger is None else f".emit({self.trigger!r})"


_TRIGGERS = "hr.after_rows(1000), hr.every('1 hour', time='event') or hr.when(\"kind = 'checkout'\")"


def global_window(name: str, *, key: Key, ttl: Duration | None = None, keep_forever: bool = False) -> GlobalWindow:
    """One window for each key that never ends; results leave when a trigger fires, in the order of event time.

    A key without rows for ``ttl`` is forgotten; a last result then leaves with everything it had.

    >>> global_window("basket", key="visitor", ttl="1 day").agg(items="count(*)").emit(AfterRows(5))
    hr.global_window('basket', key='visitor', ttl='1 day').agg(items='count(*)').emit(hr.after_rows(5))
    """
    check_name("step", name)
    return GlobalWindow(name=name, key=key_columns(key), ttl=time_to_live(name, ttl, keep_forever))
