"""State as an author's code sees it: the values of the key at hand, with their time to live and a way back.

Every change leaves the old content in the journal, so a call that fails is undone without copies of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.expressions.aggregates.accumulators import Accumulator
from headrace.operators.process.fitting import Fit

FOREVER = 2**64
"""Longer than any distance between two times."""
Journal = list[tuple[Any, ...]]
"""What a call has changed: who changed, and what there was before."""


class Timeline:
    """Where event time, or the clock, stands for the call at hand."""

    __slots__ = ("now",)

    def __init__(self, now: int) -> None:
        self.now = now


@dataclass(frozen=True, slots=True)
class Binding:
    """What a handle needs besides the key: time, how long values live, whether reading renews them, how they fit."""

    name: str
    timeline: Timeline
    ttl: int
    renews: bool
    journal: Journal
    fit: Fit
    copied: bool = False
    fit_key: Fit | None = None
    most: int = FOREVER


class StateError(ValueError):
    """A state was given what it cannot hold."""


class State(ABC):
    """What all kinds of state have in common."""

    __slots__ = ("_copied", "_fit", "_journal", "_name", "_renews", "_timeline", "_ttl")

    def __init__(self, binding: Binding) -> None:
        self._name = binding.name
        self._timeline = binding.timeline
        self._ttl = binding.ttl
        self._renews = binding.renews
        self._journal = binding.journal
        self._copied = binding.copied
        self._fit = binding.fit

    @abstractmethod
    def clear(self) -> None:
        """Forget everything of this state and key."""

    @abstractmethod
    def load(self, cell: Any) -> None:
        """Take up what is stored of a key; None is nothing."""

    @abstractmethod
    def expire(self, time: int) -> tuple[Any, int, bool]:
        """What is to be stored at a time (None: nothing), when the next of it is over, and whether something was."""

    @abstractmethod
    def latest(self) -> int | None:
        """When something of it was last written, as far as event time or the clock tells; None if there is nothing."""

    @abstractmethod
    def undo(self, *before: Any) -> None:
        """Take one change back."""

    def _fitted(self, value: Any, fit: Fit | None = None) -> Any:
        try:
            return (fit or self._fit)(value)
        except ValueError as error:
            raise StateError(f"[STATE_TYPE] state {self._name!r}: {error}") from None


class ValueState(State):
    """One value of the key."""

    __slots__ = ("_value", "_written")
    _value: Any
    _written: int

    def load(self, cell: Any) -> None:
        """Take up a value and when it was written."""
        self._value, self._written = (None, 0) if cell is None else cell

    def get(self) -> Any:
        """The value, or None when there is none or its time is over."""
        value = self._value
        if value is None or self._timeline.now - self._written >= self._ttl:
            return None
        if self._renews and self._timeline.now > self._written:
            self._put(value)
        return self._fit(value) if self._copied else value

    def set(self, value: Any) -> None:
        """Replace the value; None clears it."""
        try:
            fitted = self._fit(value)
        except ValueError as error:
            raise StateError(f"[STATE_TYPE] state {self._name!r}: {error}") from None
        self._journal.append((self, self._value, self._written))
        self._value = fitted
        self._written = self._timeline.now

    def clear(self) -> None:
        """Forget the value."""
        self._put(None)

    def _put(self, fitted: Any) -> None:
        self._journal.append((self, self._value, self._written))
        self._value = fitted
        self._written = self._timeline.now

    def undo(self, *before: Any) -> None:
        """The value and its time as they were."""
        self._value, self._written = before

    def latest(self) -> int | None:
        """When the value was written."""
        return None if self._value is None else self._written

    def expire(self, time: int) -> tuple[Any, int, bool]:
        """The value, unless its time is over."""
        if self._value is None:
            return None, FOREVER, False
        if time - self._written >= self._ttl:
            return None, FOREVER, True
        return (self._value, self._written), self._written + self._ttl, False


class ReducingState(ValueState):
    """One value of the key into which others are folded."""

    __slots__ = ("_function",)

    def __init__(self, binding: Binding, function: Callable[[Any, Any], Any]) -> None:
        super().__init__(binding)
        self._function = function

    def add(self, value: Any) -> None:
        """Fold a value in; the first stands for itself."""
        known = ValueState.get(self)
        self.set(value if known is None else self._function(known, value))


class AggregatingState(ValueState):
    """What an accumulator keeps of the values that were added."""

    __slots__ = ("_accumulator",)

    def __init__(self, binding: Binding, accumulator: Accumulator) -> None:
        super().__init__(binding)
        self._accumulator = accumulator

    def add(self, value: Any) -> None:
        """Take a value in."""
        known = ValueState.get(self)
        self.set(self._accumulator.add(self._accumulator.start() if known is None else known, value))

    def get(self) -> Any:
        """The accumulator's result, or None when nothing was added."""
        kept = ValueState.get(self)
        return None if kept is None else self._accumulator.result(kept)
