"""State as an author declares it: a kind, a type, and how long values live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

import polars as pl

from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.expressions.aggregates.accumulators import Accumulator
from headrace.operators.process.declared_types import type_of_value
from headrace.operators.process.fitting import fitting, is_copied, one_nan
from headrace.operators.process.handles import (
    FOREVER,
    AggregatingState,
    Binding,
    Journal,
    ReducingState,
    State,
    Timeline,
    ValueState,
)
from headrace.operators.process.life import Clock, Life, Refresh, life_of
from headrace.operators.process.lists_and_maps import ListState, MapState

if TYPE_CHECKING:
    from headrace.operators.process.keyed_process import KeyedProcess

MOST = 100_000
Handle = TypeVar("Handle", bound=State)


@dataclass(frozen=True, kw_only=True)
class Declared(ABC, Generic[Handle]):
    """A state of a process; in ``on_row`` and ``on_timer`` it is the state of the key at hand."""

    sql: str
    """The type of a value, as the author wrote it."""
    life: Life
    most: int = FOREVER
    change: ClassVar[str] = "set(value)"
    """How an author changes it."""

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

    @abstractmethod
    def column(self) -> pl.DataType:
        """The type of the column that holds it, one cell for each key."""

    @abstractmethod
    def handle(self, binding: Binding) -> Handle:
        """What the author's code works with."""

    @property
    def text(self) -> str:
        """What must stay the same for stored values to stay valid."""
        return f"{self.kind} {self.sql}" + ("" if self.life.ttl is None else f" by {self.life.time}")

    @property
    def kind(self) -> str:
        """What kind of state it is."""
        return type(self).__name__.removeprefix("Declared").lower()

    @property
    def value_type(self) -> pl.DataType:
        """The type of one value."""
        return type_of_value(self.sql)

    def bind(self, name: str, times: dict[Clock, Timeline], journal: Journal) -> Handle:
        """The handle of this state."""
        ttl = FOREVER if self.life.ttl is None else self.life.ttl
        renews = self.life.refresh == "read_and_write"
        dtype = self.value_type
        return self.handle(
            Binding(
                name,
                times[self.life.time],
                ttl,
                renews,
                journal,
                fitting(dtype),
                is_copied(dtype),
                self.fit_key,
                self.most,
            )
        )

    @property
    def fit_key(self) -> Any:
        """How a map's own keys fit their type."""
        return None


class DeclaredValue(Declared[ValueState]):
    """One value."""

    def column(self) -> pl.DataType:
        return self.value_type

    def handle(self, binding: Binding) -> ValueState:
        return ValueState(binding)


class DeclaredList(Declared[ListState]):
    """Several values in order."""

    change = "set(values)"

    def column(self) -> pl.DataType:
        return pl.List(pl.Struct({"value": self.value_type, "written": pl.Int64()}))

    def handle(self, binding: Binding) -> ListState:
        return ListState(binding)


@dataclass(frozen=True, kw_only=True)
class DeclaredMap(Declared[MapState]):
    """Values by keys of their own."""

    key_type: str
    change = "put(key, value)"

    def column(self) -> pl.DataType:
        return pl.List(
            pl.Struct({"key": type_of_value(self.key_type), "value": self.value_type, "written": pl.Int64()})
        )

    def handle(self, binding: Binding) -> MapState:
        return MapState(binding)

    @property
    def text(self) -> str:
        return f"{super().text} of {self.key_type}"

    @property
    def fit_key(self) -> Any:
        fit = fitting(type_of_value(self.key_type))
        return lambda key: one_nan(fit(key))


@dataclass(frozen=True, kw_only=True)
class DeclaredReducing(Declared[ReducingState]):
    """One value into which others are folded."""

    function: Callable[[Any, Any], Any]
    change = "add(value)"

    def column(self) -> pl.DataType:
        return self.value_type

    def handle(self, binding: Binding) -> ReducingState:
        return ReducingState(binding, self.function)


@dataclass(frozen=True, kw_only=True)
class DeclaredAggregating(Declared[AggregatingState]):
    """What an accumulator keeps."""

    accumulator: Accumulator
    change = "add(value)"

    def column(self) -> pl.DataType:
        return self.value_type

    def handle(self, binding: Binding) -> AggregatingState:
        return AggregatingState(binding, self.accumulator)

    @property
    def value_type(self) -> pl.DataType:
        return pl.Struct(self.accumulator.buffer_types)


def value_state(
    type: str,
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: Clock = "event",
    refresh: Refresh = "write",
) -> DeclaredValue:
    """One value of each key: ``get()``, ``set(value)``, ``clear()``.

    >>> value_state("INT", ttl="15 minutes").text
    'value INT by event'
    """
    return DeclaredValue(sql=_checked(type), life=life_of(ttl, keep_forever, ttl_time, refresh))


def list_state(
    type: str,
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: Clock = "event",
    refresh: Refresh = "write",
    most: int = MOST,
) -> DeclaredList:
    """Values of each key in order, each with its own time to live: ``get()``, ``add``, ``extend``, ``set``, ``clear``.

    >>> list_state("DOUBLE", ttl="1 hour").text
    'list DOUBLE by event'
    """
    return DeclaredList(sql=_checked(type), life=life_of(ttl, keep_forever, ttl_time, refresh), most=_most(most))


def map_state(
    key_type: str,
    value_type: str,
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: Clock = "event",
    refresh: Refresh = "write",
    most: int = MOST,
) -> DeclaredMap:
    """Values of each key by a key of their own: ``get(key)``, ``put``, ``remove``, ``contains``, ``keys``, ``items``.

    >>> map_state("STRING", "INT", ttl="1 day").text
    'map INT by event of STRING'
    """
    if type_of_value(key_type).is_nested():
        raise DefinitionError("MAP_KEY_TYPE", f"map_state: key type {key_type!r} cannot be a key. Use a plain type.")
    life = life_of(ttl, keep_forever, ttl_time, refresh)
    return DeclaredMap(sql=_checked(value_type), life=life, most=_most(most), key_type=key_type)


def reducing_state(
    type: str,
    function: Callable[[Any, Any], Any],
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: Clock = "event",
    refresh: Refresh = "write",
) -> DeclaredReducing:
    """One value of each key into which a function of two values folds others: ``add(value)``, ``get()``, ``clear()``.

    >>> reducing_state("DOUBLE", max, ttl="1 day").text
    'reducing DOUBLE by event'
    """
    if not callable(function):
        raise DefinitionError(
            "REDUCER_UNKNOWN", f"reducing_state: {function!r} is no function of two values. Give one, such as max."
        )
    return DeclaredReducing(sql=_checked(type), life=life_of(ttl, keep_forever, ttl_time, refresh), function=function)


def aggregating_state(
    accumulator: Accumulator | type[Accumulator],
    *,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    ttl_time: Clock = "event",
    refresh: Refresh = "write",
) -> DeclaredAggregating:
    """What an ``hr.Accumulator`` keeps of the values of each key: ``add(value)``, ``get()``, ``clear()``."""
    # What an accumulator reads of a row is of no use here: values are given to it one by one.
    is_class = isinstance(accumulator, type) and issubclass(accumulator, Accumulator)
    made: Any = accumulator("value") if is_class else accumulator  # type: ignore[operator]
    if not isinstance(made, Accumulator):
        raise DefinitionError(
            "ACCUMULATOR_UNKNOWN",
            f"aggregating_state: {accumulator!r} is no hr.Accumulator. Give one with start, add, merge and result.",
        )
    life = life_of(ttl, keep_forever, ttl_time, refresh)
    return DeclaredAggregating(sql=f"STRUCT<{made.state}>", life=life, accumulator=made)


def _most(most: int) -> int:
    if type(most) is not int or most < 1:
        raise DefinitionError(
            "MOST_NOT_POSITIVE", f"most={most!r} is no number of values that there is room for. Give 1 or more."
        )
    return most


def _checked(type: str) -> str:
    type_of_value(type)
    return type
