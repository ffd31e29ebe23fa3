"""State descriptors: the kind of a state, the type of its values, and their time to live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

import polars as pl

from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.expressions.aggregates.accumulators import Accumulator
from headrace.operators.process.collection_state import ListState, MapState
from headrace.operators.process.state import (
    FOREVER,
    AggregatingState,
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

if TYPE_CHECKING:
    from headrace.operators.process.keyed_process import KeyedProcess

MOST = 100_000
"""How many elements a list or map of one key may have, unless ``most=`` says otherwise."""
Handle = TypeVar("Handle", bound=KeyedState)


@dataclass(frozen=True, kw_only=True)
class StateDescriptor(Generic[Handle]):
    """A state that a process declares; in ``on_row`` and ``on_timer`` its name gives the handle of the current key."""

    sql_type: str
    """The type of a value as SQL text."""
    ttl_config: TtlConfig
    most: int = FOREVER
    kind: ClassVar[str]
    handle: ClassVar[type[KeyedState]]
    """The class of the handle that the user's code works with."""
    is_collection: ClassVar[bool] = False
    """Whether there are several values, each with its own time to live."""
    change: ClassVar[str] = "set(value)"
    """The method that changes it, for error texts."""

    def __post_init__(self) -> None:
        _ = self.value_type  # an unreadable type is refused here
        if type(self.most) is not int or self.most < 1:
            raise DefinitionError(
                "MOST_NOT_POSITIVE", f"most={self.most!r} must be at least 1. Leave it out for {MOST:,}."
            )

    @overload
    def __get__(self, process: None, owner: type) -> Self: ...
    @overload
    def __get__(self, process: KeyedProcess, owner: type) -> Handle: ...
    def __get__(self, process: KeyedProcess | None, owner: type) -> Any:
        if process is None:
            return self
        raise DefinitionError(
            "STATE_OUT_OF_REACH",
            f"a state of {owner.__name__} was used outside of on_row and on_timer, where there is no key. "
            "Use it there.",
        )

    @property
    def column(self) -> pl.DataType:
        """The type of the state column, one cell for each key."""
        return self.value_type

    @property
    def text(self) -> str:
        """The identity of the state: what must stay the same for stored values to stay valid."""
        return f"{self.kind} {self.sql_type}" + ("" if self.ttl_config.ttl is None else f" by {self.ttl_config.time}")

    @property
    def value_type(self) -> pl.DataType:
        return parse_type(self.sql_type)


class ValueStateDescriptor(StateDescriptor[ValueState]):
    """One value."""

    kind = "value"
    handle = ValueState


class ListStateDescriptor(StateDescriptor[ListState]):
    """Values in the order in which they were added."""

    kind = "list"
    handle = ListState
    is_collection = True
    change = "set(values)"

    @property
    def column(self) -> pl.DataType:
        return pl.List(pl.Struct({"value": self.value_type, "written": pl.Int64()}))


@dataclass(frozen=True, kw_only=True)
class MapStateDescriptor(StateDescriptor[MapState]):
    """A map."""

    key_type: str
    kind = "map"
    handle = MapState
    is_collection = True
    change = "put(key, value)"

    @property
    def column(self) -> pl.DataType:
        return pl.List(pl.Struct({"key": parse_type(self.key_type), "value": self.value_type, "written": pl.Int64()}))

    @property
    def text(self) -> str:
        return f"{super().text} of {self.key_type}"


@dataclass(frozen=True, kw_only=True)
class ReducingStateDescriptor(StateDescriptor[ReducingState]):
    """One value, combined with each added value by a function."""

    function: Callable[[Any, Any], Any]
    kind = "reducing"
    handle = ReducingState
    change = "add(value)"


@dataclass(frozen=True, kw_only=True)
class AggregatingStateDescriptor(StateDescriptor[AggregatingState]):
    """The buffer of an accumulator."""

    accumulator: Accumulator
    kind = "aggregating"
    handle = AggregatingState
    change = "add(value)"

    @property
    def value_type(self) -> pl.DataType:
        return pl.Struct(self.accumulator.buffer_types)


@stable
def value_state(
    type: str,
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: TimeDomain = "event",
    refresh: Refresh = "write",
) -> ValueStateDescriptor:
    """One value for each key: ``get()``, ``set(value)``, ``clear()``.

    >>> value_state("INT", ttl="15 minutes").text
    'value INT by event'
    """
    return ValueStateDescriptor(sql_type=type, ttl_config=check_ttl(ttl, keep_forever, ttl_time, refresh))


@stable
def list_state(
    type: str,
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: TimeDomain = "event",
    refresh: Refresh = "write",
    most: int = MOST,
) -> ListStateDescriptor:
    """A list for each key, each value with its own time to live: ``get()``, ``add``, ``extend``, ``set``, ``clear``.

    >>> list_state("DOUBLE", ttl="1 hour").text
    'list DOUBLE by event'
    """
    config = check_ttl(ttl, keep_forever, ttl_time, refresh)
    return ListStateDescriptor(sql_type=type, ttl_config=config, most=most)


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
) -> MapStateDescriptor:
    """A map for each key, each entry with its own time to live.

    Its methods are ``get(key)``, ``put``, ``remove``, ``contains``, ``keys``, ``items`` and ``clear``.

    >>> map_state("STRING", "INT", ttl="1 day").text
    'map INT by event of STRING'
    """
    if parse_type(key_type).is_nested():
        raise DefinitionError("MAP_KEY_TYPE", f"map_state: key type {key_type!r} cannot be a key. Use a plain type.")
    config = check_ttl(ttl, keep_forever, ttl_time, refresh)
    return MapStateDescriptor(sql_type=value_type, ttl_config=config, most=most, key_type=key_type)


@stable
def reducing_state(
    type: str,
    function: Callable[[Any, Any], Any],
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: TimeDomain = "event",
    refresh: Refresh = "write",
) -> ReducingStateDescriptor:
    """One value for each key, combined with each added value by a function: ``add(value)``, ``get()``, ``clear()``.

    >>> reducing_state("DOUBLE", max, ttl="1 day").text
    'reducing DOUBLE by event'
    """
    if not callable(function):
        raise DefinitionError(
            "REDUCER_UNKNOWN", f"reducing_state: {function!r} must be a function of two values, such as max."
        )
    config = check_ttl(ttl, keep_forever, ttl_time, refresh)
    return ReducingStateDescriptor(sql_type=type, ttl_config=config, function=function)


@stable
def aggregating_state(
    accumulator: Accumulator | type[Accumulator],
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: TimeDomain = "event",
    refresh: Refresh = "write",
) -> AggregatingStateDescriptor:
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
    return AggregatingStateDescriptor(sql_type=f"STRUCT<{made.state}>", ttl_config=config, accumulator=made)
