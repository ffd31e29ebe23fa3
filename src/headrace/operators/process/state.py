"""State handles: the values of the current key with their time to live; every change can be undone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.operators.process.value_types import Converter, converter_for

if TYPE_CHECKING:
    from headrace.operators.process.keyed_process import StateDescriptor

TimeDomain = Literal["event", "clock"]
Refresh = Literal["write", "read_and_write"]
FOREVER = 2**64
"""Longer than any distance between two times."""
UndoLog = list[tuple[Any, ...]]
"""What undoes the changes of a call: functions with their arguments."""


@dataclass(frozen=True, slots=True)
class TtlConfig:
    """The time to live of a value, in which time domain, and whether reading the value refreshes it."""

    ttl: int | None
    """In microseconds; None keeps values for ever."""
    time: TimeDomain = "event"
    refresh: Refresh = "write"

    @property
    def arguments(self) -> dict[str, object]:
        if self.ttl is None:
            return {"keep_forever": True}
        time = {} if self.time == "event" else {"ttl_time": self.time}
        refresh = {} if self.refresh == "write" else {"refresh": self.refresh}
        return {"ttl": spoken(self.ttl), **time, **refresh}


def check_ttl(
    ttl: Duration | None,
    keep_forever: bool,
    time: TimeDomain = "event",
    refresh: Refresh = "write",
    *,
    label: str = "a state",
) -> TtlConfig:
    """Check the arguments of what is kept for each key; it needs a time to live or ``keep_forever``.

    >>> check_ttl("1 day", False).arguments
    {'ttl': '1 day'}
    """
    if ttl is None and not keep_forever:
        raise DefinitionError(
            "TTL_MISSING",
            f"{label} without a time to live grows with every new key. Say how long a value is needed, as in "
            "ttl='1 day', or keep_forever=True.",
        )
    if ttl is not None and keep_forever:
        raise DefinitionError(
            "TTL_TWICE", f"{label} has ttl={ttl!r} and keep_forever=True, which contradict each other. Remove one."
        )
    if time not in ("event", "clock") or refresh not in ("write", "read_and_write"):
        raise DefinitionError(
            "TTL_UNKNOWN",
            f"ttl_time={time!r}, refresh={refresh!r} is not known. ttl_time is 'event' or 'clock', refresh is 'write' "
            "or 'read_and_write'.",
        )
    return TtlConfig(None if ttl is None else positive_microseconds(ttl, argument="ttl"), time, refresh)


@dataclass(slots=True)
class CurrentTime:
    """Event time, or the clock, as the current call sees it."""

    now: int


class CallError(ValueError):
    """What a process may not do in a call, such as give a state a value that it cannot hold."""


class KeyedState(ABC):
    """What all kinds of state have in common."""

    __slots__ = ("_convert", "_declared", "_is_mutable", "_name", "_refreshes", "_time", "_ttl", "_undo_log", "config")
    kind: ClassVar[str]
    change: ClassVar[str]
    """The method that changes it, for error texts."""

    def __init__(self, declared: StateDescriptor[Any], name: str, time: CurrentTime, undo_log: UndoLog) -> None:
        self.config = config = declared.ttl_config
        self._declared = declared
        self._name = name
        self._time = time
        self._ttl = FOREVER if config.ttl is None else config.ttl
        self._refreshes = config.refresh == "read_and_write"
        self._undo_log = undo_log
        # Values that the user's code could change are copied when they are read.
        self._is_mutable = declared.value_type.is_nested()
        self._convert = converter_for(declared.value_type)

    @abstractmethod
    def load(self, cell: Any) -> None:
        """Load the stored cell of a key; None is nothing."""

    @abstractmethod
    def expire(self, time: int) -> tuple[Any, int, bool]:
        """The cell to store at a time (None: nothing), when the next value expires, and whether one has expired."""

    @abstractmethod
    def last_write(self) -> int | None:
        """When it was last written, in its time domain; None if it is empty."""

    def _converted(self, value: Any, convert: Converter | None = None) -> Any:
        try:
            return (convert or self._convert)(value)
        except ValueError as error:
            raise CallError(f"[STATE_TYPE] state {self._name!r}: {error}") from None


class ValueState(KeyedState):
    """One value of the key."""

    __slots__ = ("_value", "_written")
    kind = "value"
    change = "set(value)"
    _value: Any
    _written: int

    def load(self, cell: Any) -> None:
        self._value, self._written = (None, 0) if cell is None else cell

    def get(self) -> Any:
        """The value, or None if there is none or it has expired."""
        value = self._value
        if value is None or self._time.now - self._written >= self._ttl:
            return None
        if self._refreshes and self._time.now > self._written:
            self._replace(value)
        return self._convert(value) if self._is_mutable else value

    def set(self, value: Any) -> None:
        """Replace the value; None clears it."""
        try:
            converted = self._convert(value)
        except ValueError as error:
            raise CallError(f"[STATE_TYPE] state {self._name!r}: {error}") from None
        self._undo_log.append((self._restore, self._value, self._written))
        self._value = converted
        self._written = self._time.now

    def clear(self) -> None:
        self._replace(None)

    def _replace(self, value: Any) -> None:
        self._undo_log.append((self._restore, self._value, self._written))
        self._value = value
        self._written = self._time.now

    def _restore(self, value: Any, written: int) -> None:
        self._value, self._written = value, written

    def last_write(self) -> int | None:
        return None if self._value is None else self._written

    def expire(self, time: int) -> tuple[Any, int, bool]:
        if self._value is None:
            return None, FOREVER, False
        if time - self._written >= self._ttl:
            return None, FOREVER, True
        return (self._value, self._written), self._written + self._ttl, False


class ReducingState(ValueState):
    """One value of the key, combined with each added value by a function."""

    __slots__ = ()
    kind = "reducing"
    change = "add(value)"

    def add(self, value: Any) -> None:
        """Combine a value with the one there is; the first is taken as it is."""
        known = ValueState.get(self)
        self.set(value if known is None else self._declared.function(known, value))


class AggregatingState(ValueState):
    """The buffer of an accumulator over the values that were added."""

    __slots__ = ()
    kind = "aggregating"
    change = "add(value)"

    def add(self, value: Any) -> None:
        buffer, accumulator = ValueState.get(self), self._declared.function
        self.set(accumulator.add(accumulator.start() if buffer is None else buffer, value))

    def get(self) -> Any:
        """The accumulator's result, or None if nothing was added."""
        buffer = ValueState.get(self)
        return None if buffer is None else self._declared.function.result(buffer)
