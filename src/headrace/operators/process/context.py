"""What an author's code knows of the call at hand: key, time, rules; and the timers of the key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from headrace.durations import Duration, microseconds
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING, END
from headrace.operators.process.handles import Journal
from headrace.operators.process.rows import microseconds_of, moment
from headrace.operators.process.rules import RuleHistory
from headrace.operators.process.timers import TimerError, Timers

MOST_IN_A_ROW = 10_000
"""Timers for the past that the timers of one key may set in a batch before they are taken for an endless loop."""
NOT_COUNTED = -(2**63)


class Context:
    """The call at hand."""

    __slots__ = (
        "_bounds",
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

    def __init__(self, bounds: TimeBounds, journal: Journal, rules: RuleHistory | None = None) -> None:
        self._bounds = bounds
        self._ended = bounds.fire == END
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
        return None if self._bounds.fire == BEGINNING else moment(self._bounds.fire)

    @property
    def now(self) -> datetime:
        """The batch's processing time, which is the same when the batch runs again."""
        return moment(self._bounds.clock)

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
        if after is None:
            time = _moment(name, at)
        elif at is None:
            time = self._time + _length(after)
        else:
            raise _two_times(name, at, after)
        if time <= self._time or self._ended:
            self._count()
        if type(name) is not str or not name.isascii():
            _check_name(name)
        if not BEGINNING < time < END:
            raise _out_of_reach(name)
        self.timers.set(name, time, None if payload is None else _as_json(name, payload))

    def cancel_timer(self, name: str) -> None:
        """Take a timer of event time back; nothing happens if it is not set."""
        self.timers.cancel(name)

    def set_clock_timer(
        self, name: str, *, at: datetime | None = None, after: Duration | None = None, payload: Any = None
    ) -> None:
        """Call ``on_timer`` when the clock reaches a moment, or so long after ``now``; the same name replaces."""
        if after is None:
            time = _moment(name, at)
        elif at is None:
            time = self._bounds.clock + _length(after)
        else:
            raise _two_times(name, at, after)
        if time <= self._bounds.clock:
            self._count()
        if type(name) is not str or not name.isascii():
            _check_name(name)
        if not BEGINNING < time < END:
            raise _out_of_reach(name)
        self.clock_timers.set(name, time, None if payload is None else _as_json(name, payload))

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


def _check_name(name: Any) -> None:
    if type(name) is not str:
        raise TimerError(f"[TIMER_NAME] a timer's name is text, not {name!r}.")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise TimerError(
            f"[TIMER_NAME] a timer cannot be named {name!r}, which is no valid Unicode, so it could not be stored. "
            "Take the lone surrogates out of it."
        ) from None


def _two_times(name: str, at: datetime, after: Duration) -> TimerError:
    return TimerError(
        f"[TIMER_TIME] timer {name!r} has at={at!r} and after={after!r}, which are two times. Take one away."
    )


def _out_of_reach(name: str) -> TimerError:
    return TimerError(
        f"[TIMER_TIME] timer {name!r} would fire before the beginning or after the end of time, some 292,000 years "
        "away. Give it a nearer time, or none at all."
    )


def _as_json(name: str, payload: Any) -> str:
    try:
        return json.dumps(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise TimerError(
            f"[TIMER_PAYLOAD] timer {name!r}: {error}. It is stored as JSON: give text, numbers, lists or dicts."
        ) from error


def _moment(name: str, at: datetime | None) -> int:
    if not isinstance(at, datetime):
        raise TimerError(
            f"[TIMER_TIME] timer {name!r}: at={at!r} is no moment. Give at=<datetime> or after='5 minutes'."
        )
    return microseconds_of(at)


@lru_cache(maxsize=1024)
def _length(after: Duration) -> int:
    if not isinstance(after, str | timedelta):
        raise TimerError(f"[TIMER_TIME] after={after!r} is no length of time. Give after='5 minutes' or a timedelta.")
    return microseconds(after, argument="after")
