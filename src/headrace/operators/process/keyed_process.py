"""The class that users extend, code that runs for every row and timer of a key, and the states that it declares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import polars as pl

from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.expressions.aggregates.accumulators import Accumulator
from headrace.operators.process.collection_state import CollectionState, ListState, MapState
from headrace.operators.process.context import Context, Timer
from headrace.operators.process.state import (
    FOREVER,
    AggregatingState,
    CallError,
    KeyedState,
    ReducingState,
    Refresh,
    TimeDomain,
    TtlConfig,
    ValueState,
    check_ttl,
)
from headrace.operators.process.value_types import parse_type
from headrace.stability import stable

Emitted = Iterable[Any] | None
"""What a call emits: dicts, or ``hr.output(...)`` for a side output; as a generator, a list, or None."""
MOST = 100_000
"""How many elements a list or map of one key may have, unless ``most=`` says otherwise."""
Handle = TypeVar("Handle", bound=KeyedState)


@dataclass(frozen=True)
class StateDescriptor(Generic[Handle]):
    """A state that a process declares; in ``on_row`` and ``on_timer`` its name gives the handle of the current key."""

    handle: type[Handle]
    ttl_config: TtlConfig
    sql_type: str
    value_type: pl.DataType
    """The type of a value, of which ``sql_type`` is the SQL text."""
    most: int = FOREVER
    key_type: str | None = None
    """The type of a map's keys as SQL text."""
    function: Any = None
    """What combines added values: a function of two of them, or an accumulator."""

    def __post_init__(self) -> None:
        if type(self.most) is not int or self.most < 1:
            raise DefinitionError(
                "MOST_NOT_POSITIVE", f"most={self.most!r} must be at least 1. Leave it out for {MOST:,}."
            )

    @overload
    def __get__(self, process: None, owner: type) -> Self: ...
    @overload
    def __get__(self, process: StatefulProcess, owner: type[StatefulProcess]) -> Handle: ...
    def __get__(self, process: StatefulProcess | None, owner: Any) -> Any:
        if process is None:
            return self
        raise DefinitionError(
            "STATE_OUT_OF_REACH",
            f"a state of {owner.__name__} was used as a value where there is no key. {owner.access}.",
        )

    @property
    def is_collection(self) -> bool:
        """Whether there are several values, each with its own time to live."""
        return issubclass(self.handle, CollectionState)

    @property
    def column(self) -> pl.DataType:
        """The type of the state column, one cell for each key."""
        if not self.is_collection:
            return self.value_type
        key = {} if self.key_type is None else {"key": parse_type(self.key_type)}
        return pl.List(pl.Struct({**key, "value": self.value_type, "written": pl.Int64()}))

    @property
    def text(self) -> str:
        """The identity of the state: what must stay the same for stored values to stay valid."""
        time = "" if self.ttl_config.ttl is None else f" by {self.ttl_config.time}"
        keys = "" if self.key_type is None else f" of {self.key_type}"
        return f"{self.handle.kind} {self.sql_type}{time}{keys}"


class StatefulProcess(ABC):
    """Code with states that its class declares."""

    access: ClassVar[str]
    """How the code uses a state, for error texts."""

    def __setattr__(self, name: str, value: Any) -> None:
        declared = getattr(type(self), name, None)
        # A dataclass assigns what its class declares to each new instance.
        if isinstance(declared, StateDescriptor) and value is not declared:
            text = (
                f"state {name!r} was assigned a value, which would hide the state and not be stored for any key. Write "
                f"self.{name}.{declared.handle.change} in on_row and on_timer, or choose another name for a setting."
            )
            # Where there is a handle, this is a call for a key; elsewhere the process is still being defined.
            is_bound = name in vars(self)
            raise CallError(f"[STATE_ASSIGNED] {text}") if is_bound else DefinitionError("STATE_ASSIGNED", text)
        if not isinstance(value, StateDescriptor):
            super().__setattr__(name, value)
        elif declared is None:
            raise DefinitionError(
                "STATE_NOT_IN_CLASS",
                f"state {name!r} is declared on one instance of {type(self).__name__}, so no key has it. Declare "
                f"states in the class: write {name} = hr.{value.handle.kind}_state(...) above its methods.",
            )


@stable
class KeyedProcess(StatefulProcess):
    """Code with state and timers for each key: declare states in the class, use them in ``on_row`` and ``on_timer``.

    >>> class FailedLogins(KeyedProcess):
    ...     failures = value_state("INT", ttl="15 minutes")
    ...     def on_row(self, row, context):
    ...         count = (self.failures.get() or 0) + 1
    ...         self.failures.set(count)
    ...         if count == 5:
    ...             yield {"user": context.key, "failures": count}
    >>> list(declared_states(FailedLogins()))
    ['failures']
    """

    access: ClassVar[str] = "Use it inside on_row and on_timer"

    @abstractmethod
    def on_row(self, row: Any, context: Context) -> Emitted:
        """Process a row of the key."""

    def on_timer(self, timer: Timer, context: Context) -> Emitted:
        """Process a timer of the key that fires; required if the process sets timers."""
        raise TypeError(
            f"[TIMER_UNHANDLED] timer {timer.name!r} fires, but {type(self).__name__} has no on_timer(self, timer, "
            "context). Define it."
        )


def declared_states(process: StatefulProcess) -> dict[str, StateDescriptor[Any]]:
    """The states that a process declares, sorted by name: a class that is pickled may lose their order."""
    found: dict[str, StateDescriptor[Any]] = {}
    for owner in reversed(type(process).__mro__):
        found |= {name: value for name, value in vars(owner).items() if isinstance(value, StateDescriptor)}
    return dict(sorted(found.items()))


@stable
def value_state(
    type: str,
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: TimeDomain = "event",
    refresh: Refresh = "write",
) -> StateDescriptor[ValueState]:
    """One value for each key: ``get()``, ``set(value)``, ``clear()``.

    >>> value_state("INT", ttl="15 minutes").text
    'value INT by event'
    """
    config = check_ttl(ttl, keep_forever, ttl_time, refresh)
    return StateDescriptor(ValueState, config, type, parse_type(type))


@stable
def list_state(
    type: str,
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: TimeDomain = "event",
    refresh: Refresh = "write",
    most: int = MOST,
) -> StateDescriptor[ListState]:
    """A list for each key, each value with its own time to live: ``get()``, ``add``, ``extend``, ``set``, ``clear``.

    >>> list_state("DOUBLE", ttl="1 hour").text
    'list DOUBLE by event'
    """
    config = check_ttl(ttl, keep_forever, ttl_time, refresh)
    return StateDescriptor(ListState, config, type, parse_type(type), most=most)


@stable
def map_state(
    key_type: str,
    value_type: str,
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: TimeDomain = "event",
    refresh: Refresh = "write",
    most: int = MOST,
) -> StateDescriptor[MapState]:
    """A map for each key, each entry with its own time to live.

    Its methods are ``get(key)``, ``put``, ``remove``, ``contains``, ``keys``, ``items`` and ``clear``.

    >>> map_state("STRING", "INT", ttl="1 day").text
    'map INT by event of STRING'
    """
    if parse_type(key_type).is_nested():
        raise DefinitionError("MAP_KEY_TYPE", f"map_state: key type {key_type!r} cannot be a key. Use a plain type.")
    config = check_ttl(ttl, keep_forever, ttl_time, refresh)
    return StateDescriptor(MapState, config, value_type, parse_type(value_type), most=most, key_type=key_type)


@stable
def reducing_state(
    type: str,
    function: Callable[[Any, Any], Any],
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: TimeDomain = "event",
    refresh: Refresh = "write",
) -> StateDescriptor[ReducingState]:
    """One value for each key, combined with each added value by a function: ``add(value)``, ``get()``, ``clear()``.

    >>> reducing_state("DOUBLE", max, ttl="1 day").text
    'reducing DOUBLE by event'
    """
    if not callable(function):
        raise DefinitionError(
            "REDUCER_UNKNOWN", f"reducing_state: {function!r} must be a function of two values, such as max."
        )
    config = check_ttl(ttl, keep_forever, ttl_time, refresh)
    return StateDescriptor(ReducingState, config, type, parse_type(type), function=function)


@stable
def aggregating_state(
    accumulator: Accumulator | type[Accumulator],
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: TimeDomain = "event",
    refresh: Refresh = "write",
) -> StateDescriptor[AggregatingState]:
    """The result of an ``hr.Accumulator`` over the added values of each key: ``add(value)``, ``get()``, ``clear()``.

    >>> class Mean(Accumulator):
    ...     state = "n BIGINT, total DOUBLE"
    ...     result_type = "DOUBLE"
    ...     def start(self):
    ...         return {"n": 0, "total": 0.0}
    ...     def add(self, buffer, value):
    ...         return {"n": buffer["n"] + 1, "total": buffer["total"] + value}
    ...     def merge(self, one, other):
    ...         return {"n": one["n"] + other["n"], "total": one["total"] + other["total"]}
    ...     def result(self, buffer):
    ...         return buffer["total"] / buffer["n"]
    >>> aggregating_state(Mean, ttl="1 day").text
    'aggregating STRUCT<n BIGINT, total DOUBLE> by event'
    """
    # The columns that an accumulator reads do not matter here: values are given to it one by one.
    is_class = isinstance(accumulator, type) and issubclass(accumulator, Accumulator)
    made: Any = accumulator("value") if is_class else accumulator  # type: ignore[operator]
    if not isinstance(made, Accumulator):
        raise DefinitionError(
            "ACCUMULATOR_UNKNOWN",
            f"aggregating_state: {accumulator!r} must be an hr.Accumulator with start, add, merge and result.",
        )
    config = check_ttl(ttl, keep_forever, ttl_time, refresh)
    buffer = pl.Struct(made.buffer_types)
    return StateDescriptor(AggregatingState, config, f"STRUCT<{made.state}>", buffer, function=made)
