"""The timers of a key: by name, on one timeline."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Any

from headrace.operators.process.handles import FOREVER, Journal
from headrace.operators.process.rows import moment


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
