"""The calls of an author's code for one key after the other: in order, each of them whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace.errors import HeadraceError
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.process.context import NOT_COUNTED, Context
from headrace.operators.process.failures import FAILED, FailedCall, Failures, as_json
from headrace.operators.process.handles import FOREVER, Journal, Timeline
from headrace.operators.process.keyed_process import Emitted, KeyedProcess
from headrace.operators.process.on_error import OnError
from headrace.operators.process.outputs import Emission, OutputRows
from headrace.operators.process.rows import Row
from headrace.operators.process.rules import RuleHistory
from headrace.operators.process.timers import Timer

Timed = tuple[Row, int, bool]
"""A row, its time, and whether it is late."""


class Calls:
    """Works through the keys of a key group in one batch."""

    def __init__(
        self,
        process: KeyedProcess,
        step: str,
        ordered: bool,
        on_error: OnError,
        bounds: TimeBounds,
        outputs: dict[str, OutputRows],
        rules: RuleHistory | None,
    ) -> None:
        self._step = step
        self._ordered = ordered
        self._on_error = on_error
        self._bounds = bounds
        self._rules = rules
        self._journal: Journal = []
        # What was over before this batch is gone already, so no row may see time further back.
        self._event, self._clock = Timeline(bounds.before), Timeline(bounds.clock)
        self._process, self._states = process.at_work({"event": self._event, "clock": self._clock}, self._journal)
        self._context = Context(bounds, self._journal, rules)
        self._emission = Emission(outputs)
        self._changed = False
        self.failures = Failures()

    def key(
        self, key: Any, stored: tuple[Any, ...] | None, rows: Iterable[Timed], *, woken: bool
    ) -> tuple[Any, ...] | None:
        """Everything that happens to a key in this batch; what is to be stored of it, or None when nothing changed.

        ``stored`` and the result hold the cell of each state, then the timers, then when something is due by event
        time and by the clock. A key with nothing left has no timers and no cells. One that was woken is always stored:
        when its time to live has become longer, all that changes is when it is due.
        """
        context = self._context
        context._key = key
        self._load(stored)
        self._changed = woken
        self._event.now = self._bounds.before
        self._take(rows)
        self._settle()
        return self._stored() if self._changed or stored is not None else None

    def _load(self, stored: tuple[Any, ...] | None) -> None:
        cells = (None,) * len(self._states) if stored is None else stored
        for state, cell in zip(self._states, cells, strict=False):
            state.load(cell)
        context = self._context
        if stored is None or not stored[-1]:
            context.timers.load({})
            context.clock_timers.load({})
        else:
            timers: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
            for name, time, text, clock in stored[-1]:
                timers[clock][name] = (time, text)
            context.timers.load(timers[False])
            context.clock_timers.load(timers[True])

    def _take(self, rows: Iterable[Timed]) -> None:
        """The rows of a key; with ``ordered``, timers that are due before a row fire before it."""
        context, event, journal = self._context, self._event, self._journal
        heap, floor = context.timers.heap, self._bounds.before
        on_row, emission, ordered = self._process.on_row, self._emission, self._ordered
        given: Emitted = None
        for row, time, late in rows:
            if ordered and heap and heap[0][0] <= time:
                context.late = False
                self._fire(time)
            context._time = time
            context.late = late
            event.now = time if time > floor else floor
            try:
                given = on_row(row, context)
                if given is not None:
                    for item in given:
                        emission.take(item, self._carried(time))
            except FAILED as error:
                self._recover(error, on_row, row, given)
            if journal:
                journal.clear()
                self._changed = True
            if emission.staged:
                emission.commit()
        context.late = False

    def _settle(self) -> None:
        """After the rows: timers that are due by event time, then those by the clock, until none is left."""
        context, bounds = self._context, self._bounds
        if not self._ordered:
            self._event.now = bounds.before
        while True:
            if context.timers.heap:
                self._fire(bounds.fire)
            due = context.clock_timers.due(bounds.clock) if context.clock_timers.heap else None
            if due is None:
                break
            if context.in_a_row < 0:
                context.in_a_row = 0
            self._on_clock_timer(Timer(*due, clock=True))
        context.in_a_row = NOT_COUNTED

    def _fire(self, until: int) -> None:
        """Timers of event time up to a time, each at its time; one for the past at the time there is."""
        counting = self._context.in_a_row < 0
        if counting:
            self._context.in_a_row = 0
        while (due := self._context.timers.due(until)) is not None:
            time = max(due[1], self._event.now)
            self._on_timer(Timer(*due, clock=False), time, time)
        if counting:
            self._context.in_a_row = NOT_COUNTED

    def _on_clock_timer(self, timer: Timer) -> None:
        """A timer of the clock, at the event time there is; while nobody knows, at the time of the clock.

        Its state then stands where the key last wrote: event time may be far behind the clock.
        """
        bounds, event = self._bounds, self._event
        known = bounds.fire if BEGINNING < bounds.fire < END else bounds.before
        now = max(known, event.now)
        if now > BEGINNING:
            self._on_timer(timer, now, now)
        else:
            self._on_timer(timer, bounds.clock, self._last_written)
            event.now = BEGINNING

    def _on_timer(self, timer: Timer, time: int, now: int) -> None:
        self._changed = True
        self._context._time = time
        self._event.now = now
        on_timer = self._process.on_timer
        given: Emitted = None
        try:
            given = on_timer(timer, self._context)
            self._emit(given, time)
        except FAILED as error:
            self._recover(error, on_timer, timer, given)
        self._journal.clear()
        self._emission.commit()

    @property
    def _last_written(self) -> int:
        mortal = (state for state in self._states if state._timeline is self._event and state._ttl < FOREVER)
        return max((time for state in mortal if (time := state.latest()) is not None), default=self._bounds.clock)

    def _emit(self, given: Emitted, time: int) -> None:
        if given is not None:
            for item in given:
                self._emission.take(item, self._carried(time))

    def _carried(self, time: int) -> tuple[Any, ...]:
        return (time,) if self._rules is None else (time, self._rules.version(time))

    def _stored(self) -> tuple[Any, ...] | None:
        bounds = self._bounds
        cells = []
        due, due_clock = self._context.timers.earliest, self._context.clock_timers.earliest
        for state in self._states:
            by_clock = state._timeline is self._clock
            cell, over, expired = state.expire(bounds.clock if by_clock else bounds.fire)
            cells.append(cell)
            self._changed |= expired
            if by_clock:
                due_clock = min(due_clock, over)
            else:
                due = min(due, over)
        if not self._changed:
            return None
        timers = [
            (name, time, text, clock)
            for clock, each in ((False, self._context.timers), (True, self._context.clock_timers))
            for name, (time, text) in each.by_name.items()
        ]
        return (*cells, timers, min(due, END), min(due_clock, END))

    def _recover(
        self, error: BaseException, function: Callable[..., Emitted], given: Row | Timer, emitted: Any
    ) -> None:
        """Undo a failed call and try again as often as is allowed; then stop, or leave a dead letter."""
        self._undo()
        for _ in range(self._on_error.again):
            try:
                emitted = function(given, self._context)
                self._emit(emitted, self._context._time)
                return
            except FAILED as again:
                error = again
                self._undo()
        failed = FailedCall(error, function, emitted)
        method = f"{type(self._process).__name__}.{function.__name__}"
        reason = f"step {self._step!r}, key {self._context.key!r}: {method} failed: {failed.said}"
        if self._on_error.then == "stop":
            raise HeadraceError("PROCESS_FAILED", reason) from failed.cause
        is_timer = isinstance(given, Timer)
        self.failures.timers += is_timer
        detail, row = f"{reason}\n{failed.traced}", as_json(given, self._context.key)
        self.failures.letters.append(("PROCESS_FAILED", detail, row, is_timer))

    def _undo(self) -> None:
        for changed, *before in reversed(self._journal):
            changed.undo(*before)
        self._journal.clear()
        self._emission.staged.clear()


def key_values(columns: list[list[Any]]) -> Iterator[Any]:
    """Keys as authors see them: a value, or a tuple of several."""
    return iter(columns[0]) if len(columns) == 1 else zip(*columns, strict=True)
