"""List state and map state; every element has its own time to live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.operators.process.state import FOREVER, KeyedState, StateBinding, StateError


class ListState(KeyedState):
    """Values of the key in the order in which they were added, each with its own time to live."""

    __slots__ = ("_entries", "_most")

    def __init__(self, binding: StateBinding) -> None:
        super().__init__(binding)
        self._most = binding.most

    def load(self, cell: Any) -> None:
        """Load values and when each was written."""
        self._entries: list[tuple[Any, int]] = [] if cell is None else cell

    def get(self) -> list[Any]:
        """All values that have not expired."""
        now = self._time.now
        if self._refreshes:
            self._refresh(now)
        values = [value for value, written in self._entries if now - written < self._ttl]
        return [self._convert(value) for value in values] if self._is_mutable else values

    def add(self, value: Any) -> None:
        """Append a value."""
        converted = self._converted(value)
        if len(self._entries) >= self._most:
            self._make_room()
        self._entries.append((converted, self._time.now))
        self._undo_log.append((self, None))

    def extend(self, values: Iterable[Any]) -> None:
        """Append several values."""
        for value in values:
            self.add(value)

    def set(self, values: Iterable[Any]) -> None:
        """Replace all values."""
        now = self._time.now
        entries: list[tuple[Any, int]] = []
        for value in values:
            if len(entries) >= self._most:
                raise self._too_long()
            entries.append((self._converted(value), now))
        self._replace(entries)

    def clear(self) -> None:
        """Remove all values."""
        self._replace([])

    def undo(self, *before: Any) -> None:
        """Restore the list; None removes the last value."""
        if before[0] is None:
            self._entries.pop()
        else:
            self._entries = before[0]

    def last_write(self) -> int | None:
        """When the last value was written."""
        return max((written for _, written in self._entries), default=None)

    def expire(self, time: int) -> tuple[Any, int, bool]:
        """The values that have not expired."""
        alive = [entry for entry in self._entries if time - entry[1] < self._ttl]
        expired = len(alive) < len(self._entries)
        if not alive:
            return None, FOREVER, expired
        return alive, min(written for _, written in alive) + self._ttl, expired

    def _refresh(self, now: int) -> None:
        """Refresh all values; with ordered=False one may have been written at a later time already."""
        alive = [(value, max(written, now)) for value, written in self._entries if now - written < self._ttl]
        if alive:
            self._replace(alive)

    def _make_room(self) -> None:
        now = self._time.now
        alive = [entry for entry in self._entries if now - entry[1] < self._ttl]
        if len(alive) >= self._most:
            raise self._too_long()
        self._replace(alive)

    def _replace(self, entries: list[tuple[Any, int]]) -> None:
        self._undo_log.append((self, self._entries))
        self._entries = entries

    def _too_long(self) -> StateError:
        return StateError(
            f"[STATE_TOO_LONG] state {self._name!r} would hold more than most={self._most} values for one key. Keep "
            "fewer, with a shorter ttl or an aggregate instead, or declare a larger most."
        )


class MapState(KeyedState):
    """A map of the key, each entry with its own time to live."""

    __slots__ = ("_convert_key", "_entries", "_most")

    def __init__(self, binding: StateBinding) -> None:
        super().__init__(binding)
        self._convert_key = binding.convert_key
        self._most = binding.most

    def load(self, cell: Any) -> None:
        """Load entries and when each was written."""
        self._entries: dict[Any, tuple[Any, int]] = {} if cell is None else cell

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or the default if there is none or it has expired."""
        entry = self._read(key)
        if entry is None:
            return default
        return self._convert(entry[0]) if self._is_mutable else entry[0]

    def contains(self, key: Any) -> bool:
        """Whether a key has a value that has not expired."""
        return self._read(key) is not None

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        converted_key, converted = self._converted(key, self._convert_key), self._converted(value)
        if len(self._entries) >= self._most and converted_key not in self._entries:
            self._make_room()
        self._put(converted_key, (converted, self._time.now))

    def remove(self, key: Any) -> None:
        """Remove a key."""
        converted_key = self._converted(key, self._convert_key)
        if converted_key in self._entries:
            self._undo_log.append((self, converted_key, self._entries.pop(converted_key)))

    def keys(self) -> list[Any]:
        """The keys whose values have not expired, in ascending order."""
        return [key for key, _ in self._alive()]

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values that have not expired, in ascending order of the keys."""
        alive = self._alive()
        if self._refreshes:
            for key, _ in alive:
                self._refresh(key, self._entries[key])
        return [(key, self._convert(value)) for key, value in alive] if self._is_mutable else alive

    def clear(self) -> None:
        """Remove all entries."""
        self._replace({})

    def undo(self, *before: Any) -> None:
        """Restore one entry, or all of them."""
        if len(before) == 1:
            self._entries = before[0]
        elif before[1] is None:
            del self._entries[before[0]]
        else:
            self._entries[before[0]] = before[1]

    def last_write(self) -> int | None:
        """When the last entry was written."""
        return max((written for _, written in self._entries.values()), default=None)

    def expire(self, time: int) -> tuple[Any, int, bool]:
        """The entries that have not expired."""
        alive = {key: entry for key, entry in self._entries.items() if time - entry[1] < self._ttl}
        expired = len(alive) < len(self._entries)
        if not alive:
            return None, FOREVER, expired
        return alive, min(written for _, written in alive.values()) + self._ttl, expired

    def _read(self, key: Any) -> tuple[Any, int] | None:
        """The entry of a key unless it has expired; refreshed if reading refreshes."""
        converted_key = self._converted(key, self._convert_key)
        entry = self._entries.get(converted_key)
        now = self._time.now
        if entry is None or now - entry[1] >= self._ttl:
            return None
        if self._refreshes:
            self._refresh(converted_key, entry)
        return entry

    def _refresh(self, key: Any, entry: tuple[Any, int]) -> None:
        """Refresh an entry; with ordered=False it may have been written at a later time already."""
        if self._time.now > entry[1]:
            self._put(key, (entry[0], self._time.now))

    def _alive(self) -> list[tuple[Any, Any]]:
        now = self._time.now
        alive = [(key, entry[0]) for key, entry in self._entries.items() if now - entry[1] < self._ttl]
        # The order of insertion depends on entries that expired, were removed or undone in between.
        return sorted(alive, key=lambda entry: (entry[0] is not None, entry[0]))

    def _put(self, key: Any, entry: tuple[Any, int]) -> None:
        self._undo_log.append((self, key, self._entries.get(key)))
        self._entries[key] = entry

    def _replace(self, entries: dict[Any, tuple[Any, int]]) -> None:
        self._undo_log.append((self, self._entries))
        self._entries = entries

    def _make_room(self) -> None:
        now = self._time.now
        alive = {key: entry for key, entry in self._entries.items() if now - entry[1] < self._ttl}
        if len(alive) >= self._most:
            raise StateError(
                f"[STATE_TOO_LONG] state {self._name!r} would hold more than most={self._most} entries for one key. "
                "Keep fewer, with a shorter ttl, or declare a larger most."
            )
        self._replace(alive)
