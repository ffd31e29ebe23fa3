"""State as an author's code sees it: the values of the key at hand, with their time to live and a way back.

Every change leaves the old content in the journal, so a call that fails is undone without copies of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.expressions.aggregates.accumulator import Accumulator
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
        if self._renews:
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


class ListState(State):
    """Values of the key in the order in which they were added, each with its own time to live."""

    __slots__ = ("_entries", "_most")

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._most = binding.most

    def load(self, cell: Any) -> None:
        """Take up values and when each was written."""
        self._entries: list[tuple[Any, int]] = [] if cell is None else cell

    def get(self) -> list[Any]:
        """All values that are not over."""
        now = self._timeline.now
        values = [value for value, written in self._entries if now - written < self._ttl]
        if self._renews and values:
            self._replace([(value, now) for value in values])
        return [self._fit(value) for value in values] if self._copied else values

    def add(self, value: Any) -> None:
        """Append a value."""
        fitted = self._fitted(value)
        if len(self._entries) >= self._most:
            self._make_room()
        self._entries.append((fitted, self._timeline.now))
        self._journal.append((self, None))

    def extend(self, values: Iterable[Any]) -> None:
        """Append several values."""
        for value in values:
            self.add(value)

    def set(self, values: Iterable[Any]) -> None:
        """Replace all values."""
        now = self._timeline.now
        entries = [(self._fitted(value), now) for value in values]
        if len(entries) > self._most:
            raise self._too_long()
        self._replace(entries)

    def clear(self) -> None:
        """Forget all values."""
        self._replace([])

    def undo(self, *before: Any) -> None:
        """The list as it was; None stands for one value less."""
        if before[0] is None:
            self._entries.pop()
        else:
            self._entries = before[0]

    def expire(self, time: int) -> tuple[Any, int, bool]:
        """The values whose time is not over."""
        living = [entry for entry in self._entries if time - entry[1] < self._ttl]
        over = len(living) < len(self._entries)
        if not living:
            return None, FOREVER, over
        return living, min(written for _, written in living) + self._ttl, over

    def _make_room(self) -> None:
        now = self._timeline.now
        living = [entry for entry in self._entries if now - entry[1] < self._ttl]
        if len(living) >= self._most:
            raise self._too_long()
        self._replace(living)

    def _replace(self, entries: list[tuple[Any, int]]) -> None:
        self._journal.append((self, self._entries))
        self._entries = entries

    def _too_long(self) -> StateError:
        return StateError(
            f"[STATE_TOO_LONG] state {self._name!r} would hold more than most={self._most} values for one key. Keep "
            "fewer, with a shorter ttl or a value that sums them up, or declare a larger most."
        )


class MapState(State):
    """Values of the key by a key of their own, each with its own time to live."""

    __slots__ = ("_entries", "_fit_key", "_most")

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._fit_key = binding.fit_key
        self._most = binding.most

    def load(self, cell: Any) -> None:
        """Take up entries and when each was written."""
        self._entries: dict[Any, tuple[Any, int]] = {} if cell is None else cell

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or the default when there is none or its time is over."""
        entry = self._entries.get(key)
        now = self._timeline.now
        if entry is None or now - entry[1] >= self._ttl:
            return default
        if self._renews:
            self._put(key, (entry[0], now))
        return self._fit(entry[0]) if self._copied else entry[0]

    def contains(self, key: Any) -> bool:
        """Whether a key has a value whose time is not over."""
        entry = self._entries.get(key)
        return entry is not None and self._timeline.now - entry[1] < self._ttl

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        fitted_key, fitted = self._fitted(key, self._fit_key), self._fitted(value)
        if len(self._entries) >= self._most and fitted_key not in self._entries:
            self._make_room()
        self._put(fitted_key, (fitted, self._timeline.now))

    def remove(self, key: Any) -> None:
        """Forget the value of a key."""
        if key in self._entries:
            self._journal.append((self, key, self._entries.pop(key)))

    def keys(self) -> list[Any]:
        """The keys whose values are not over, in their own order."""
        return [key for key, _ in self._living()]

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values that are not over, in the order of the keys."""
        living = self._living()
        if self._renews:
            for key, value in living:
                self._put(key, (value, self._timeline.now))
        return [(key, self._fit(value)) for key, value in living] if self._copied else living

    def clear(self) -> None:
        """Forget all entries."""
        self._replace({})

    def undo(self, *before: Any) -> None:
        """One entry, or all of them, as they were."""
        if len(before) == 1:
            self._entries = before[0]
        elif before[1] is None:
            del self._entries[before[0]]
        else:
            self._entries[before[0]] = before[1]

    def expire(self, time: int) -> tuple[Any, int, bool]:
        """The entries whose time is not over."""
        living = {key: entry for key, entry in self._entries.items() if time - entry[1] < self._ttl}
        over = len(living) < len(self._entries)
        if not living:
            return None, FOREVER, over
        return living, min(written for _, written in living.values()) + self._ttl, over

    def _living(self) -> list[tuple[Any, Any]]:
        now = self._timeline.now
        living = [(key, entry[0]) for key, entry in self._entries.items() if now - entry[1] < self._ttl]
        # The order of arrival would tell of entries that were over, removed or undone in between.
        return sorted(living, key=lambda entry: (entry[0] is not None, entry[0]))

    def _put(self, key: Any, entry: tuple[Any, int]) -> None:
        self._journal.append((self, key, self._entries.get(key)))
        self._entries[key] = entry

    def _replace(self, entries: dict[Any, tuple[Any, int]]) -> None:
        self._journal.append((self, self._entries))
        self._entries = entries

    def _make_room(self) -> None:
        now = self._timeline.now
        living = {key: entry for key, entry in self._entries.items() if now - entry[1] < self._ttl}
        if len(living) >= self._most:
            raise StateError(
                f"[STATE_TOO_LONG] state {self._name!r} would hold more than most={self._most} entries for one key. "
                "Keep fewer, with a shorter ttl, or declare a larger most."
            )
        self._replace(living)
