"""The context of a call: key, time, rules, and the timers of the key."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from heapq import heapify, heappop, heappush
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from headrace.durations import Duration, microseconds
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END, instant
from headrace.operators.process.rows import InputRow, as_datetime
from headrace.operators.process.state import FOREVER, CallError, UndoLog

MOST_IN_A_ROW = 10_000
"""How many timers that are already due a key's timers may set in a batch before they count as an endless loop."""
NOT_COUNTED = -(2**63)


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that fires."""

    name: str
    microseconds: int
    json_payload: str | None
    clock: bool

    @property
    def time(self) -> datetime:
        return as_datetime(self.microseconds)

    @property
    def payload(self) -> Any:
        return None if self.json_payload is None else json.loads(self.json_payload)


class TimerQueue:
    """The timers of the current key in one time domain: by name, and a heap that never holds one too late.

    A postponed timer keeps its place in the heap until that comes up, so postponing, what most timers do, is cheap.
    """

    __slots__ = ("_undo_log", "by_name", "heap")

    def __init__(self, undo_log: UndoLog) -> None:
        self._undo_log = undo_log
        self.load({})

    def load(self, by_name: dict[str, tuple[int, str | None]]) -> None:
        self.by_name = by_name
        self.heap = [(timer[0], name) for name, timer in by_name.items()]
        heapify(self.heap)

    def set(self, name: str, time: int, payload: Any) -> None:
        # Most rows of a process set a timer: the check that passes is inline.
        if type(name) is not str or not name.isascii() or not BEGINNING < time < END:
            _check(name, time)
        json_payload = None if payload is None else _as_json(name, payload)
        known = self.by_name.get(name)
        self._undo_log.append((self._restore, name, known))
        self.by_name[name] = (time, json_payload)
        if known is None or time < known[0]:
            heappush(self.heap, (time, name))

    def cancel(self, name: str) -> None:
        known = self.by_name.pop(name, None)
        if known is not None:
            self._undo_log.append((self._restore, name, known))

    def _restore(self, name: str, known: tuple[int, str | None] | None) -> None:
        if known is None:
            del self.by_name[name]
        else:
            self.by_name[name] = known

    def pop_due(self, until: int) -> tuple[str, int, str | None] | None:
        """Remove the earliest timer up to a time; of two at the same time the first by name."""
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
        return min((time for time, _ in self.by_name.values()), default=FOREVER)


@dataclass(slots=True)
class RuleHistory:
    """The rules of a batch: those before it, and each change in it."""

    current: Mapping[Any, InputRow]
    version_before: int
    """How many changes there were before."""
    changes: list[tuple[int, Any, InputRow | None]]
    """Time, key and rule of each change, in order; None removes the rule."""
    _versions: dict[int, Mapping[Any, InputRow]] = field(default_factory=dict)

    def at(self, time: int) -> Mapping[Any, InputRow]:
        """The rules at a time, built when they are first read."""
        changes = self._changes_until(time)
        if changes not in self._versions:
            known = dict(self.current)
            for _, key, rule in self.changes[:changes]:
                known.pop(key, None)
                if rule is not None:
                    known[key] = rule
            self._versions[changes] = MappingProxyType(known)
        return self._versions[changes]

    def version(self, time: int) -> int:
        """How many changes there were up to a time."""
        return self.version_before + self._changes_until(time)

    def _changes_until(self, time: int) -> int:
        return bisect_right(self.changes, time, key=itemgetter(0))


class BatchContext:
    """What a call knows of its batch."""

    __slots__ = ("_bounds",)

    def __init__(self, bounds: TimeBounds) -> None:
        self._bounds = bounds

    @property
    def watermark(self) -> datetime | None:
        """The watermark of this batch; None before there is one."""
        return None if self._bounds.fire == BEGINNING else as_datetime(self._bounds.fire)

    @property
    def now(self) -> datetime:
        """The processing time of the batch; it is the same when the batch runs again."""
        return as_datetime(self._bounds.clock)


class Context(BatchContext):
    """The current call: its key and time, the rules, and the timers of the key."""

    __slots__ = ("_ended", "_key", "_rules", "_time", "clock_timers", "in_a_row", "late", "timers")

    def __init__(self, bounds: TimeBounds, undo_log: UndoLog, rules: RuleHistory | None = None) -> None:
        super().__init__(bounds)
        self._ended = bounds.fire == END
        self._rules = rules
        self._key: Any = None
        self._time = 0
        self.late = False
        self.timers = TimerQueue(undo_log)
        self.clock_timers = TimerQueue(undo_log)
        self.in_a_row = NOT_COUNTED

    @property
    def key(self) -> Any:
        """The key: its value, a tuple if there are several key columns, or None if the whole stream is one key."""
        return self._key

    @property
    def time(self) -> datetime:
        """The event time of the row or timer."""
        return as_datetime(self._time)

    @property
    def rules(self) -> Mapping[Any, Any]:
        """The rules by their key, as they were at the time of the call."""
        if self._rules is None:
            raise CallError(
                "[RULES_MISSING] this process has no rules. Declare them with hr.process(..., rules=hr.rules(key=...))."
            )
        return self._rules.at(self._time)

    def set_timer(
        self, name: str, *, at: datetime | None = None, after: Duration | None = None, payload: Any = None
    ) -> None:
        """Call ``on_timer`` when the watermark is ``at`` a time, or ``after`` this call's; replaces one of the name."""
        time = _time_given(name, self._time, at, after)
        if time <= self._time or self._ended:
            self._count_due()
        self.timers.set(name, time, payload)

    def cancel_timer(self, name: str) -> None:
        """Cancel an event-time timer; nothing happens if it is not set."""
        self.timers.cancel(name)

    def set_clock_timer(
        self, name: str, *, at: datetime | None = None, after: Duration | None = None, payload: Any = None
    ) -> None:
        """Call ``on_timer`` when processing time is ``at`` a time, or ``after`` ``now``; replaces one of the name."""
        time = _time_given(name, self._bounds.clock, at, after)
        if time <= self._bounds.clock:
            self._count_due()
        self.clock_timers.set(name, time, payload)

    def cancel_clock_timer(self, name: str) -> None:
        """Cancel a processing-time timer; nothing happens if it is not set."""
        self.clock_timers.cancel(name)

    def _count_due(self) -> None:
        self.in_a_row += 1
        if self.in_a_row > MOST_IN_A_ROW:
            raise CallError(
                f"[TIMER_LOOP] the timers of key {self._key!r} have set timers that fire at once {MOST_IN_A_ROW} times "
                "in a row, which would never end. Set them for a later time, and not at the end of a drained run."
            )


def _time_given(name: str, now: int, at: datetime | None, after: Duration | None) -> int:
    if at is None and after is not None:
        return now + _length(after)
    if after is not None:
        raise CallError(
            f"[TIMER_TIME] timer {name!r} has at={at!r} and after={after!r}, which are two times. Remove one."
        )
    if not isinstance(at, datetime):
        raise CallError(
            f"[TIMER_TIME] timer {name!r}: at={at!r} is not a datetime. Write at=<datetime> or after='5 minutes'."
        )
    return instant(at, argument="at")


def _check(name: Any, time: int) -> None:
    if type(name) is not str:
        raise CallError(f"[TIMER_NAME] a timer's name must be a string, not {name!r}.")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise CallError(
            f"[TIMER_NAME] a timer cannot be named {name!r}: it is not valid Unicode and cannot be stored. Remove its "
            "lone surrogates."
        ) from None
    if not BEGINNING < time < END:
        raise CallError(
            f"[TIMER_TIME] timer {name!r} would fire before the beginning or after the end of time, some 292,000 years "
            "away. Set it for a nearer time, or not at all."
        )


def _as_json(name: str, payload: Any) -> str:
    try:
        return json.dumps(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise CallError(
            f"[TIMER_PAYLOAD] timer {name!r}: {error}. The payload is stored as JSON: use strings, numbers, lists and "
            "dicts."
        ) from error


@lru_cache(maxsize=1024)
def _length(after: Duration) -> int:
    if not isinstance(after, str | timedelta):
        raise CallError(f"[TIMER_TIME] after={after!r} is not a duration. Write after='5 minutes' or a timedelta.")
    return microseconds(after, argument="after")
