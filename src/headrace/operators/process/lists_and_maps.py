"""State of several values: a list, and a map; every element has its own time to live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.operators.process.handles import FOREVER, Binding, State, StateError


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
        if self._renews:
            self._renew(now)
        values = [value for value, written in self._entries if now - written < self._ttl]
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
        entries: list[tuple[Any, int]] = []
        for value in values:
            if len(entries) >= self._most:
                raise self._too_long()
            entries.append((self._fitted(value), now))
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

    def latest(self) -> int | None:
        """When the last value was written."""
        return max((written for _, written in self._entries), default=None)

    def expire(self, time: int) -> tuple[Any, int, bool]:
        """The values whose time is not over."""
        living = [entry for entry in self._entries if time - entry[1] < self._ttl]
        over = len(living) < len(self._entries)
        if not living:
            return None, FOREVER, over
        return living, min(written for _, written in living) + self._ttl, over

    def _renew(self, now: int) -> None:
        """Begin the life of all values anew; without order one may have been written at a later time already."""
        living = [(value, max(written, now)) for value, written in self._entries if now - written < self._ttl]
        if living:
            self._replace(living)

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
        entry = self._read(key)
        if entry is None:
            return default
        return self._fit(entry[0]) if self._copied else entry[0]

    def contains(self, key: Any) -> bool:
        """Whether a key has a value whose time is not over."""
        return self._read(key) is not None

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        fitted_key, fitted = self._fitted(key, self._fit_key), self._fitted(value)
        if len(self._entries) >= self._most and fitted_key not in self._entries:
            self._make_room()
        self._put(fitted_key, (fitted, self._timeline.now))

    def remove(self, key: Any) -> None:
        """Forget the value of a key."""
        fitted_key = self._fitted(key, self._fit_key)
        if fitted_key in self._entries:
            self._journal.append((self, fitted_key, self._entries.pop(fitted_key)))

    def keys(self) -> list[Any]:
        """The keys whose values are not over, in their own order."""
        return [key for key, _ in self._living()]

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values that are not over, in the order of the keys."""
        living = self._living()
        if self._renews:
            for key, _ in living:
                self._renew(key, self._entries[key])
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

    def latest(self) -> int | None:
        """When the last entry was written."""
        return max((written for _, written in self._entries.values()), default=None)

    def expire(self, time: int) -> tuple[Any, int, bool]:
        """The entries whose time is not over."""
        living = {key: entry for key, entry in self._entries.items() if time - entry[1] < self._ttl}
        over = len(living) < len(self._entries)
        if not living:
            return None, FOREVER, over
        return living, min(written for _, written in living.values()) + self._ttl, over

    def _read(self, key: Any) -> tuple[Any, int] | None:
        """The entry of a key unless its time is over, renewed where reading renews."""
        fitted_key = self._fitted(key, self._fit_key)
        entry = self._entries.get(fitted_key)
        now = self._timeline.now
        if entry is None or now - entry[1] >= self._ttl:
            return None
        if self._renews:
            self._renew(fitted_key, entry)
        return entry

    def _renew(self, key: Any, entry: tuple[Any, int]) -> None:
        """Begin an entry's life anew; without order it may have been written at a later time already."""
        if self._timeline.now > entry[1]:
            self._put(key, (entry[0], self._timeline.now))

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
