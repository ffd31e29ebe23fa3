"""What an author's code knows of the call at hand: key, time, rules; and the timers of the key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Any

from headrace.durations import Duration, microseconds
from headrace.event_time.record import Edge
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.process.handles import FOREVER, Journal
from headrace.operators.process.rows import microseconds_of, moment
from headrace.operators.process.rules import RuleHistory

MOST_IN_A_ROW = 10_000
"""Timers for the past that the timers of one key may set in a batch before they are taken for an endless loop."""
NOT_COUNTED = -(2**63)


class TimerError(ValueError):
    """A timer was asked for that cannot be set."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that fires."""

    name: str
    microseconds: int
    text: str | None
    clock: bool

    @property
    def time(self) -> datetime:
        """When it was to fire."""
        return moment(self.microseconds)

    @property
    def payload(self) -> Any:
        """What was given with it."""
        return None if self.text is None else json.loads(self.text)


class Timers:
    """The timers of the key at hand on one timeline: by name, and a heap that never holds one too late.

    A timer that is put off keeps its old place in the heap and gets its new one when the old one comes up, so putting
    off, which is what most timers are for, costs nothing.
    """

    __slots__ = ("_journal", "by_name", "heap")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.load({})

    def load(self, by_name: dict[str, tuple[int, str | None]]) -> None:
        """Take up the timers of a key."""
        self.by_name = by_name
        self.heap = [(timer[0], name) for name, timer in by_name.items()]
        heapify(self.heap)

    def set(self, name: str, time: int, text: str | None) -> None:
        """Set a timer, in the place of the one with its name."""
        known = self.by_name.get(name)
        self._journal.append((self, name, known))
        self.by_name[name] = (time, text)
        if known is None or time < known[0]:
            heappush(self.heap, (time, name))

    def cancel(self, name: str) -> None:
        """Remove a timer, if it is set."""
        known = self.by_name.pop(name, None)
        if known is not None:
            self._journal.append((self, name, known))

    def undo(self, name: str, known: tuple[int, str | None] | None) -> None:
        """A timer as it was."""
        if known is None:
            del self.by_name[name]
        else:
            self.by_name[name] = known

    def due(self, until: int) -> tuple[str, int, str | None] | None:
        """Take out the earliest timer up to a time; of two at the same time the first by name."""
        heap = self.heap
        while heap and heap[0][0] <= until:
            placed, name = heappop(heap)
            timer = self.by_name.get(name)
            if timer is None or timer[0] < placed:
                continue
            if timer[0] > placed:
                heappush(heap, (timer[0], name))
                continue
            del self.by_name[name]
            return name, *timer
        return None

    @property
    def earliest(self) -> int:
        """When the next one fires."""
        return min((time for time, _ in self.by_name.values()), default=FOREVER)


class Context:
    """The call at hand."""

    __slots__ = (
        "_edge",
        "_ended",
        "_key",
        "_rules",
        "_time",
        "_timeline",
        "clock_timers",
        "in_a_row",
        "late",
        "timers",
    )

    def __init__(self, edge: Edge, journal: Journal, rules: RuleHistory | None = None) -> None:
        self._edge = edge
        self._ended = edge.fire == END
        self._rules = rules
        self._key: Any = None
        self._time = 0
        self.late = False
        self.timers = Timers(journal)
        self.clock_timers = Timers(journal)
        self.in_a_row = NOT_COUNTED

    @property
    def key(self) -> Any:
        """The key: its value, or a tuple when there are several key columns."""
        return self._key

    @property
    def time(self) -> datetime:
        """The time of the row or timer."""
        return moment(self._time)

    @property
    def watermark(self) -> datetime | None:
        """How far event time has come in this batch; None before it is known."""
        return None if self._edge.fire == BEGINNING else moment(self._edge.fire)

    @property
    def now(self) -> datetime:
        """The batch's processing time, which is the same when the batch runs again."""
        return moment(self._edge.clock)

    @property
    def rules(self) -> Mapping[Any, Any]:
        """The rules by their key, as they were at the time of the call."""
        if self._rules is None:
            raise TimerError(
                "[RULES_MISSING] this process has no rules. Give hr.process(..., rules=hr.rules(key=...))."
            )
        return self._rules.at(self._time)

    def set_timer(
        self, name: str, *, at: datetime | None = None, after: Duration | None = None, payload: Any = None
    ) -> None:
        """Call ``on_timer`` when event time reaches a moment, or so long after ``time``; the same name replaces."""
        time = self._time + _length(after) if after is not None else _moment(name, at)
        if time <= self._time or self._ended:
            self._count()
        if type(name) is not str:
            raise _no_name(name)
        self.timers.set(name, time, None if payload is None else json.dumps(payload))

    def cancel_timer(self, name: str) -> None:
        """Take a timer of event time back; nothing happens if it is not set."""
        self.timers.cancel(name)

    def set_clock_timer(
        self, name: str, *, at: datetime | None = None, after: Duration | None = None, payload: Any = None
    ) -> None:
        """Call ``on_timer`` when the clock reaches a moment, or so long after ``now``; the same name replaces."""
        time = self._edge.clock + _length(after) if after is not None else _moment(name, at)
        if time <= self._edge.clock:
            self._count()
        if type(name) is not str:
            raise _no_name(name)
        self.clock_timers.set(name, time, None if payload is None else json.dumps(payload))

    def cancel_clock_timer(self, name: str) -> None:
        """Take a timer of the clock back; nothing happens if it is not set."""
        self.clock_timers.cancel(name)

    def _count(self) -> None:
        self.in_a_row += 1
        if self.in_a_row > MOST_IN_A_ROW:
            raise TimerError(
                f"[TIMER_LOOP] the timers of key {self._key!r} have set timers that fire at once {MOST_IN_A_ROW} times "
                "in a row, which would never end. Set them for a later time, and not at the end of a drained run."
            )


def _no_name(name: Any) -> TimerError:
    return TimerError(f"[TIMER_NAME] a timer's name is text, not {name!r}.")


def _moment(name: str, at: datetime | None) -> int:
    if not isinstance(at, datetime):
        raise TimerError(
            f"[TIMER_TIME] timer {name!r}: at={at!r} is no moment. Give at=<datetime> or after='5 minutes'."
        )
    return microseconds_of(at)


@lru_cache(maxsize=1024)
def _length(after: Duration) -> int:
    return microseconds(after, argument="after")
