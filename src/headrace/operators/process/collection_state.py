"""List state and map state; every element has its own time to live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.operators.process.state import FOREVER, CallError, CurrentTime, KeyedState, UndoLog
from headrace.operators.process.value_types import canonical_nan, converter_for, parse_type

if TYPE_CHECKING:
    from headrace.operators.process.keyed_process import StateDescriptor

Entry = tuple[Any, int]
"""A value, and when it was written."""


class CollectionState(KeyedState):
    """What list state and map state share: a limited number of entries, by key or number, each with a time to live."""

    __slots__ = ("_entries",)
    _entries: dict[Any, Entry]
    elements: ClassVar[str]
    instead: ClassVar[str] = ""
    """What else would take less room, for the error text."""

    def load(self, cell: dict[Any, Entry] | None) -> None:
        self._entries = {} if cell is None else cell

    def clear(self) -> None:
        self._replace({})

    def last_write(self) -> int | None:
        return max((written for _, written in self._entries.values()), default=None)

    def expire(self, time: int) -> tuple[Any, int, bool]:
        alive = self._alive(time)
        expired = len(alive) < len(self._entries)
        if not alive:
            return None, FOREVER, expired
        return alive, min(written for _, written in alive.values()) + self._ttl, expired

    def _alive(self, now: int) -> dict[Any, Entry]:
        return {key: entry for key, entry in self._entries.items() if now - entry[1] < self._ttl}

    def _make_room(self) -> None:
        alive = self._alive(self._time.now)
        if len(alive) >= self._declared.most:
            raise self._too_long()
        self._replace(alive)

    def _put(self, key: Any, value: Any) -> None:
        self._undo_log.append((self._restore_entry, key, self._entries.get(key)))
        self._entries[key] = (value, self._time.now)

    def _refresh(self, key: Any, entry: Entry) -> None:
        """Refresh an entry; with ordered=False it may have been written at a later time already."""
        if self._time.now > entry[1]:
            self._put(key, entry[0])

    def _restore_entry(self, key: Any, entry: Entry | None) -> None:
        if entry is None:
            del self._entries[key]
        else:
            self._entries[key] = entry

    def _replace(self, entries: dict[Any, Entry]) -> None:
        self._undo_log.append((self._restore, self._entries))
        self._entries = entries

    def _restore(self, entries: dict[Any, Entry]) -> None:
        self._entries = entries

    def _too_long(self) -> CallError:
        return CallError(
            f"[STATE_TOO_LONG] state {self._name!r} would hold more than most={self._declared.most} {self.elements} "
            f"for one key. Keep fewer, with a shorter ttl{self.instead}, or declare a larger most."
        )


class ListState(CollectionState):
    """Values of the key in the order in which they were added, each with its own time to live."""

    __slots__ = ()
    kind = "list"
    change = "set(values)"
    elements = "values"
    instead = " or an aggregate instead"

    def get(self) -> list[Any]:
        """All values that have not expired."""
        now = self._time.now
        if self._refreshes:
            for number, entry in self._alive(now).items():
                self._refresh(number, entry)
        values = [value for value, written in self._entries.values() if now - written < self._ttl]
        return [self._convert(value) for value in values] if self._is_mutable else values

    def add(self, value: Any) -> None:
        converted = self._converted(value)
        if len(self._entries) >= self._declared.most:
            self._make_room()
        self._put(next(reversed(self._entries), 0) + 1, converted)

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def set(self, values: Iterable[Any]) -> None:
        now = self._time.now
        entries: dict[int, Entry] = {}
        for number, value in enumerate(values):
            if number >= self._declared.most:
                raise self._too_long()
            entries[number] = (self._converted(value), now)
        self._replace(entries)


class MapState(CollectionState):
    """A map of the key, each entry with its own time to live."""

    __slots__ = ("_convert_key",)
    kind = "map"
    change = "put(key, value)"
    elements = "entries"

    def __init__(self, declared: StateDescriptor[Any], name: str, time: CurrentTime, undo_log: UndoLog) -> None:
        super().__init__(declared, name, time, undo_log)
        convert = converter_for(parse_type(declared.key_type))
        self._convert_key = lambda key: canonical_nan(convert(key))

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
        converted_key, converted = self._converted(key, self._convert_key), self._converted(value)
        if len(self._entries) >= self._declared.most and converted_key not in self._entries:
            self._make_room()
        self._put(converted_key, converted)

    def remove(self, key: Any) -> None:
        converted_key = self._converted(key, self._convert_key)
        if converted_key in self._entries:
            self._undo_log.append((self._restore_entry, converted_key, self._entries.pop(converted_key)))

    def keys(self) -> list[Any]:
        """The keys whose values have not expired, in ascending order."""
        return [key for key, _ in self._sorted()]

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values that have not expired, in ascending order of the keys."""
        alive = self._sorted()
        if self._refreshes:
            for key, entry in alive:
                self._refresh(key, entry)
        return [(key, self._convert(entry[0]) if self._is_mutable else entry[0]) for key, entry in alive]

    def _sorted(self) -> list[tuple[Any, Entry]]:
        # The order of insertion depends on entries that expired, were removed or undone in between.
        alive = self._alive(self._time.now)
        return sorted(alive.items(), key=lambda each: (each[0] is not None, each[0]))

    def _read(self, key: Any) -> Entry | None:
        """The entry of a key unless it has expired; refreshed if reading refreshes."""
        converted_key = self._converted(key, self._convert_key)
        entry = self._entries.get(converted_key)
        if entry is None or self._time.now - entry[1] >= self._ttl:
            return None
        if self._refreshes:
            self._refresh(converted_key, entry)
        return entry
