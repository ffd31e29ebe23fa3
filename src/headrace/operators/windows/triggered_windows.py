"""The steps whose windows are ended by triggers: counting and global windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from headrace.durations import Duration, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.keys import Key, key_argument, key_columns
from headrace.operators.process.state import TtlConfig, check_ttl
from headrace.operators.step import FINAL, LateRows
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.emission import DISCARDING, ON_CLOSE, AccumulationMode, Emission
from headrace.operators.windows.trigger_operator import TriggerOperator
from headrace.operators.windows.triggers import (
    AfterRows,
    AllOf,
    AnyOf,
    Every,
    Once,
    Then,
    Trigger,
    When,
    first_by_clock,
    leaves,
)
from headrace.operators.windows.window_step import WindowStep
from headrace.stability import stable
from headrace.wheel.operator import Operator

_LEAVE_OUT = "Leave it out, or use hr.global_window(...)."
_TRIGGERS = (
    "hr.after_rows(1000), hr.every('1 hour', time='event'), hr.when(\"kind = 'checkout'\"), these combined by "
    "hr.all_of, hr.any_of, hr.then and hr.once, or hr.on_close() for a result only when a key expires"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class TriggeredWindowStep(WindowStep):
    """Windows whose rows are added in event-time order, until a key expires."""

    late_rows = LateRows(
        f"{FINAL}, and give hr.event_time(...) an out_of_order that is long enough",
        uncorrectable="a late row would move every row after it into another window or firing",
    )

    ttl: int | None
    """How long a key without rows is kept; None for ever."""
    trigger: Trigger | None = None

    @property
    def state_description(self) -> str:
        kept = "for ever" if self.ttl is None else f"until it has had no row for {spoken(self.ttl)}"
        return f"rows until event time has passed them, and a row for each key {kept}"

    @property
    def _emit_call(self) -> str:
        return "" if self.trigger is None else f".emit({self.trigger!r})"

    @property
    def horizon(self) -> int:
        return self.ttl or 0

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"key": key_argument(self.key), **TtlConfig(self.ttl).arguments}


@dataclass(frozen=True, kw_only=True, repr=False)
class Counting(TriggeredWindowStep):
    """Windows with a fixed number of rows of a key."""

    kind = "counting"
    window_id = None

    rows: int

    def emit(self, emission: Emission) -> Self:
        raise self._no_emission(emission, f"counting windows, which are emitted when full. {_LEAVE_OUT}")

    def panes(self, panes: AccumulationMode) -> Self:
        raise self._no_panes(panes, f"for counting windows, which are emitted once. {_LEAVE_OUT}")

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        trigger = AfterRows(self.rows)
        return TriggerOperator(aggregation, lateness, self.emission, DISCARDING, trigger, self.ttl, closing=True)

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"rows": self.rows, **super()._arguments}


@stable
def counting(name: str, *, rows: int, key: Key, ttl: Duration | None = None, keep_forever: bool = False) -> Counting:
    """Windows of ``rows`` rows of a key each, in event-time order.

    A key without rows for ``ttl`` expires; its unfinished window is then emitted with the rows it has.

    >>> counting("tens", rows=10, key="account", ttl="1 day").agg(spent="sum(amount)")
    hr.counting('tens', rows=10, key='account', ttl='1 day').agg(spent='sum(amount)')
    """
    if type(rows) is not int or rows < 1:
        raise DefinitionError(
            "WINDOW_WITHOUT_ROWS",
            f"window {name!r}: rows={rows!r} would never be full. Give a whole number of at least 1.",
        )
    life = check_ttl(ttl, keep_forever, label=f"window {name!r}")
    return Counting(name=name, key=key_columns(key), rows=rows, ttl=life.ttl)


@dataclass(frozen=True, kw_only=True, repr=False)
class GlobalWindow(TriggeredWindowStep):
    """One window for each key that never closes; a trigger decides when results are emitted."""

    kind = "global_window"
    window_id = ("window", "start")

    emits: bool = False
    """Whether ``.emit`` was called."""

    def emit(self, emission: Emission | Trigger) -> Self:
        """Choose the trigger; there is no default."""
        if emission == ON_CLOSE:
            return replace(self, emission=ON_CLOSE, trigger=None, emits=True)
        only_previews = isinstance(emission, Emission) and emission.kind == "early_only"
        trigger = emission.early if isinstance(emission, Emission) and only_previews else emission
        if not isinstance(trigger, AfterRows | Every | When | AllOf | AnyOf | Once | Then):
            raise self._no_emission(emission, f"a window that never closes. Use {_TRIGGERS}.")
        by_clock = first_by_clock(leaves(trigger))
        if by_clock is not None:
            raise self._wrong("TRIGGER_BY_CLOCK", f".emit({by_clock!r}) would fire by the clock. Add time='event'.")
        chosen = emission if isinstance(emission, Emission) else ON_CLOSE
        return replace(self, emission=chosen, trigger=trigger, emits=True)

    @property
    def _emit_call(self) -> str:
        by_trigger = self.trigger is not None and self.emission == ON_CLOSE
        return super()._emit_call if by_trigger or not self.emits else f".emit({self.emission!r})"

    @property
    def previews(self) -> bool:
        """Whether results replace each other; when discarding, or only at the end, they do not."""
        only_at_the_end = self.emits and self.trigger is None
        return self.accumulation.kind != "discarding" and not only_at_the_end

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        if not self.emits:
            message = f"it never closes and does not say when to emit. Add .emit(...) with {_TRIGGERS}."
            raise self._wrong("EMISSION_MISSING", message)
        for each in leaves(self.trigger) if self.trigger is not None else ():
            if isinstance(each, When):
                each.condition.truth(aggregation.schema)  # checks the types
        return TriggerOperator(aggregation, lateness, self.emission, self.accumulation, self.trigger, self.ttl)

    @property
    def _identity(self) -> Mapping[str, object]:
        return {**super()._identity, "trigger": repr(self.trigger)}


@stable
def global_window(name: str, *, key: Key, ttl: Duration | None = None, keep_forever: bool = False) -> GlobalWindow:
    """One window for each key that never closes; results are emitted when a trigger fires, in event-time order.

    A key without rows for ``ttl`` expires; a last result is then emitted.

    >>> global_window("basket", key="visitor", ttl="1 day").agg(items="count(*)").emit(AfterRows(5))
    hr.global_window('basket', key='visitor', ttl='1 day').agg(items='count(*)').emit(hr.after_rows(5))
    """
    life = check_ttl(ttl, keep_forever, label=f"window {name!r}")
    return GlobalWindow(name=name, key=key_columns(key), ttl=life.ttl)
