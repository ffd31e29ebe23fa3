"""Runs a process for one key after the other: rows and timers in order, each call applied whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, cast

from headrace.errors import HeadraceError
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.process.context import NOT_COUNTED, Context, RuleHistory, Timer
from headrace.operators.process.errors import FAILED, OnError, as_json, described
from headrace.operators.process.keyed_process import Emitted, KeyedProcess, StatefulProcess, declared_states
from headrace.operators.process.rows import InputRow, OutputBuffer, OutputCollector
from headrace.operators.process.state import CurrentTime, UndoLog

TimedRow = tuple[InputRow, int, bool]
"""A row, its time, and whether it is late."""
Cells = tuple[Any, ...]
"""The cell of each state of a key, then its timers; to be stored, also when it is due by event time and clock."""


class ProcessRunner:
    """Runs the keys of a slot in one batch."""

    def __init__(
        self,
        process: StatefulProcess,
        bounds: TimeBounds,
        outputs: dict[str, OutputBuffer],
        rules: RuleHistory | None,
        *,
        step: str,
        ordered: bool,
        on_error: OnError,
    ) -> None:
        self._step, self._ordered, self._on_error = step, ordered, on_error
        self._bounds = bounds
        self._undo_log: UndoLog = []
        # State that expired before this batch is gone already, so no row may see an earlier time.
        self._event = CurrentTime(bounds.before)
        times = {"event": self._event, "clock": CurrentTime(bounds.clock)}
        states = {
            name: declared.handle(declared, name, times[declared.ttl_config.time], self._undo_log)
            for name, declared in declared_states(process).items()
        }
        self._states = list(states.values())
        self._process = cast(KeyedProcess, copy(process))
        # The instance's own attributes hide the descriptors of the class.
        vars(self._process).update(states)
        self._context = Context(bounds, self._undo_log, rules)
        self._collector = OutputCollector(outputs, None if rules is None else rules.version)
        self._changed = False
        self.dead_letters: list[tuple[str, str, str, bool]] = []
        """Reason, detail, row, and whether it was a timer."""

    def run_key(self, key: Any, stored: Cells | None, rows: Iterable[TimedRow], *, is_due: bool) -> Cells | None:
        """Everything that happens to a key in this batch; the cells to store, or None if nothing changed."""
        self._context._key = key
        self._load(stored)
        # A key that was due is stored anyway: with a time to live that has become longer, its due time changes.
        self._changed = is_due
        self._event.now = self._bounds.before
        self._process_rows(rows)
        self._fire_remaining()
        return self._to_store() if self._changed or stored is not None else None

    def _load(self, stored: Cells | None) -> None:
        cells = (None,) * len(self._states) if stored is None else stored
        for state, cell in zip(self._states, cells, strict=False):
            state.load(cell)
        timers: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        for name, time, payload, clock in stored[-1] if stored is not None else ():
            timers[clock][name] = (time, payload)
        self._context.timers.load(timers[False])
        self._context.clock_timers.load(timers[True])

    def _process_rows(self, rows: Iterable[TimedRow]) -> None:
        """The rows of a key; with ``ordered``, timers that are due before a row fire before it."""
        context, event, undo_log = self._context, self._event, self._undo_log
        heap, floor = context.timers.heap, self._bounds.before
        on_row, collector, ordered = self._process.on_row, self._collector, self._ordered
        emitted: Emitted = None
        for row, time, late in rows:
            if ordered and heap and heap[0][0] <= time:
                context.late = False
                self._fire(time)
            context._time = time
            context.late = late
            event.now = time if time > floor else floor
            try:
                emitted = on_row(row, context)
                if emitted is not None:
                    collector.collect(emitted, time)
            except FAILED as error:
                self._recover(error, on_row, row, emitted)
            if undo_log:
                undo_log.clear()
                self._changed = True
            if collector.staged:
                collector.commit()
        context.late = False

    def _fire_remaining(self) -> None:
        """After the rows: event-time timers that are due, then those of the clock, until none is left."""
        context, bounds = self._context, self._bounds
        if not self._ordered:
            self._event.now = bounds.before
        while True:
            if context.timers.heap:
                self._fire(bounds.fire)
            due = context.clock_timers.pop_due(bounds.clock) if context.clock_timers.heap else None
            if due is None:
                break
            context.in_a_row = max(context.in_a_row, 0)
            self._on_clock_timer(Timer(*due, clock=True))
        context.in_a_row = NOT_COUNTED

    def _fire(self, until: int) -> None:
        """Event-time timers up to a time, each at its time; one for the past at the current time."""
        counting = self._context.in_a_row < 0
        if counting:
            self._context.in_a_row = 0
        while (due := self._context.timers.pop_due(until)) is not None:
            time = max(due[1], self._event.now)
            self._on_timer(Timer(*due, clock=False), time, time)
        if counting:
            self._context.in_a_row = NOT_COUNTED

    def _on_clock_timer(self, timer: Timer) -> None:
        """A processing-time timer, at the current event time; while that is unknown, at processing time."""
        bounds, event = self._bounds, self._event
        known = bounds.fire if BEGINNING < bounds.fire < END else bounds.before
        now = max(known, event.now)
        if now > BEGINNING:
            self._on_timer(timer, now, now)
        else:
            expiring = (
                state for state in self._states if state.config.time == "event" and state.config.ttl is not None
            )
            # State stays at the time of the key's last write: event time may be far behind the clock.
            writes = (state.last_write() for state in expiring)
            last_write = max((time for time in writes if time is not None), default=bounds.clock)
            self._on_timer(timer, bounds.clock, last_write)
            event.now = BEGINNING

    def _on_timer(self, timer: Timer, time: int, now: int) -> None:
        self._changed = True
        self._context._time = time
        self._event.now = now
        on_timer = self._process.on_timer
        emitted: Emitted = None
        try:
            emitted = on_timer(timer, self._context)
            self._collector.collect(emitted, time)
        except FAILED as error:
            self._recover(error, on_timer, timer, emitted)
        self._undo_log.clear()
        self._collector.commit()

    def _to_store(self) -> Cells | None:
        bounds, context = self._bounds, self._context
        cells = []
        due, due_clock = context.timers.earliest, context.clock_timers.earliest
        for state in self._states:
            by_clock = state.config.time == "clock"
            cell, expiry, expired = state.expire(bounds.clock if by_clock else bounds.fire)
            cells.append(cell)
            self._changed |= expired
            if by_clock:
                due_clock = min(due_clock, expiry)
            else:
                due = min(due, expiry)
        if not self._changed:
            return None
        timers = [
            (name, time, payload, clock)
            for clock, queue in ((False, context.timers), (True, context.clock_timers))
            for name, (time, payload) in queue.by_name.items()
        ]
        return (*cells, timers, min(due, END), min(due_clock, END))

    def _recover(
        self, error: BaseException, method: Callable[..., Emitted], given: InputRow | Timer, emitted: Any
    ) -> None:
        """Roll back a failed call and retry it as often as is allowed; then stop, or leave a dead letter."""
        self._roll_back()
        for _ in range(self._on_error.retries):
            try:
                emitted = method(given, self._context)
                self._collector.collect(emitted, self._context._time)
            except FAILED as again:
                error = again
                self._roll_back()
            else:
                return
        summary, trace, cause = described(error, method, emitted)
        called = f"{type(self._process).__name__}.{method.__name__}"
        reason = f"step {self._step!r}, key {self._context.key!r}: {called} failed: {summary}"
        if self._on_error.then == "stop":
            raise HeadraceError("PROCESS_FAILED", reason) from cause
        detail, row = f"{reason}\n{trace}", as_json(given, self._context.key)
        self.dead_letters.append(("PROCESS_FAILED", detail, row, isinstance(given, Timer)))

    def _roll_back(self) -> None:
        for undo, *before in reversed(self._undo_log):
            undo(*before)
        self._undo_log.clear()
        self._collector.staged.clear()
