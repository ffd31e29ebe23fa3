"""User-defined aggregates: row by row in Python, or as Polars expressions over whole groups."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any, ClassVar, Self

import polars as pl

from headrace.errors import DefinitionError, HeadraceError
from headrace.expressions.aggregates.aggregate import (
    Aggregate,
    AggregateFunction,
    AggregateScope,
    BoundAggregate,
    map_groups,
    parse_argument,
)
from headrace.expressions.rows import RowExpression
from headrace.schemas import parse_ddl, polars_schema
from headrace.stability import experimental, stable

Buffer = dict[str, Any]
"""What an accumulator keeps of a group: a dict with the fields of its ``state``."""


class AccumulatorFailed(HeadraceError):
    """A user-defined aggregate raised an error, or returned something else than it declares."""

    def __init__(self, message: str) -> None:
        # Polars rebuilds an error from its text and appends a note on the expression.
        text = message.removeprefix("[ACCUMULATOR_FAILED] ").partition("\n\nThis error occurred")[0]
        super().__init__("ACCUMULATOR_FAILED", text)


class UserDefinedAggregate(ABC):
    """What both kinds of user-defined aggregates share: the types of state and result, declared as DDL."""

    state: ClassVar[str] = ""
    """What is kept of a group, as in ``"n BIGINT, total DOUBLE"``."""
    result_type: ClassVar[str] = ""
    """The type of the result, as in ``"DOUBLE"``."""
    function: ClassVar[Callable[..., AggregateFunction]]
    """What runs the class."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        # Before Python refuses an abstract class: its error names no remedy.
        if not cls.state or not cls.result_type:
            advice = "Write state = 'n BIGINT, total DOUBLE' and result_type = 'DOUBLE' in it."
            raise _incomplete(f"class {cls.__name__} does not declare its types. {advice}")
        if cls.__abstractmethods__:
            missing = ", ".join(sorted(cls.__abstractmethods__))
            raise _incomplete(f"class {cls.__name__} does not define {missing}. Define each of them.")
        return super().__new__(cls)

    def __init__(self, *values: str) -> None:
        if not values:
            kind = type(self).__name__
            raise _incomplete(f"{kind}() reads nothing. Name columns, as in {kind}('amount').")
        self.arguments: tuple[RowExpression, ...] = tuple(map(parse_argument, values))

    @property
    def buffer_types(self) -> dict[str, pl.DataType]:
        return polars_schema(parse_ddl(self.state))

    @property
    def value_type(self) -> pl.DataType:
        return polars_schema(parse_ddl(f"result {self.result_type}"))["result"]

    def unnamed(self) -> Aggregate:
        """This aggregate as a value that ``.agg(name=...)`` names; its text is the identity of the state."""
        text = f"{self!r} keeping ({self.state}) for {self.result_type}"
        return Aggregate(text, self.function(self.arguments, self), code=repr(self))

    def where(self, condition: str) -> Aggregate:
        return self.unnamed().where(condition)

    def __repr__(self) -> str:
        shown = [repr(argument.text) for argument in self.arguments]
        shown += [f"{name}={value!r}" for name, value in vars(self).items() if name != "arguments"]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def _incomplete(text: str) -> DefinitionError:
    return DefinitionError("ACCUMULATOR_INCOMPLETE", text)


@dataclass(frozen=True, slots=True)
class AccumulatorFunction(AggregateFunction):
    """Calls an accumulator for every row; the state is one struct, null for no rows."""

    accumulator: Accumulator = field(hash=False)
    """Of a class of the user's, which may have no hash."""

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        stored, value_type = pl.Struct(self.accumulator.buffer_types), self.accumulator.value_type
        values = [argument.operand(scope.schema).value.alias(argument.text) for argument in self.arguments]
        row = scope.select(values[0] if len(values) == 1 else pl.struct(values))
        kept, results = scope.state("kept"), partial(self._results, scope.name)
        return BoundAggregate(
            types={"kept": stored},
            partial={"kept": map_groups(row, partial(self._added, scope.name), stored)},
            merge={"kept": map_groups(kept.drop_nulls(), partial(self._merged, scope.name), stored)},
            result=kept.map_batches(results, value_type, is_elementwise=True),
            result_type=value_type,
        )

    def check(self, scope: AggregateScope, bound: BoundAggregate) -> None:
        user = self.accumulator
        self._stored("start", scope.name, lambda _: user.start(), pl.Series([None]))

    def _added(self, name: str, groups: pl.Series) -> pl.Series:
        user = self.accumulator
        return self._stored(
            "add", name, lambda values: reduce(user.add, values, user.start()) if values else None, groups
        )

    def _merged(self, name: str, groups: pl.Series) -> pl.Series:
        user = self.accumulator
        return self._stored("merge", name, lambda several: reduce(user.merge, several) if several else None, groups)

    def _results(self, name: str, stored: pl.Series) -> pl.Series:
        user = self.accumulator
        results = self._called(
            "result", name, lambda buffer: user.result(user.start() if buffer is None else buffer), stored
        )
        return self._typed(results, user.value_type, "result", name)

    def _stored(self, method: str, name: str, function: Callable[[Any], Any], given: pl.Series) -> pl.Series:
        buffers, types = self._called(method, name, function, given), self.accumulator.buffer_types
        for buffer in buffers:
            if buffer is not None and (not isinstance(buffer, dict) or buffer.keys() != types.keys()):
                raise self._failed(method, name, f"returned {buffer!r}, which is not a dict of {', '.join(types)}")
        columns = [
            self._typed([None if each is None else each[field] for each in buffers], dtype, method, name).alias(field)
            for field, dtype in types.items()
        ]
        filled = pl.Series([buffer is not None for buffer in buffers], dtype=pl.Boolean)
        return pl.select(pl.when(filled).then(pl.struct(columns))).to_series()

    def _typed(self, values: list[Any], dtype: pl.DataType, method: str, name: str) -> pl.Series:
        try:
            return pl.Series(values, dtype=dtype, strict=True)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            reason = str(error).splitlines()[0]
            raise self._failed(method, name, f"returned a value that is not {dtype}: {reason}") from error

    def _called(self, method: str, name: str, function: Callable[[Any], Any], given: pl.Series) -> list[Any]:
        try:
            return [function(each) for each in given.to_list()]
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            raise self._failed(method, name, f"raised {type(error).__name__}: {error} (at {place})") from error

    def _failed(self, method: str, name: str, what: str) -> AccumulatorFailed:
        kind = type(self.accumulator)
        return AccumulatorFailed(
            f"aggregate '{name}': {kind.__name__}.{method} {what}. Its state is ({kind.state}) and its result "
            f"{kind.result_type}; correct the method or the declared types."
        )


@dataclass(frozen=True, slots=True)
class VectorFunction(AggregateFunction):
    """The expressions of a vector accumulator; the types that they give are checked before any data is read."""

    accumulator: VectorAccumulator = field(hash=False)

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        user, types = self.accumulator, self.accumulator.buffer_types
        values = {argument.text: scope.select(argument.operand(scope.schema).value) for argument in self.arguments}
        buffer = {field: scope.state(field) for field in types}
        given = dict(user.partial(next(iter(values.values())) if len(values) == 1 else values))
        return BoundAggregate(types, given, dict(user.merge(buffer)), user.result(buffer), user.value_type)

    def check(self, scope: AggregateScope, bound: BoundAggregate) -> None:
        rows = pl.DataFrame(schema=dict(scope.schema))
        stored = pl.DataFrame(schema={f"{scope.name}.{field}": dtype for field, dtype in bound.types.items()})
        for method, declared, frame, expressions in (
            ("partial", bound.types, rows, bound.partial),
            ("merge", bound.types, stored, bound.merge),
            ("result", {"result": bound.result_type}, stored, {"result": bound.result}),
        ):
            try:
                found: object = dict(frame.select(**expressions).schema)
            except pl.exceptions.PolarsError as error:
                found = str(error).splitlines()[0]
            if found != declared:
                raise DefinitionError(
                    "ACCUMULATOR_TYPE",
                    f"aggregate '{scope.name}': {type(self.accumulator).__name__}.{method} gives {found}, and the "
                    f"class declares {declared}. Cast the expressions, or correct state and result_type.",
                )


@stable
class Accumulator(UserDefinedAggregate):
    """A user-defined aggregate that takes one row after the other; ``buffer`` is a dict with the fields of ``state``.

    Rows are combined before they are shuffled, so the result must not depend on their grouping and order.

    >>> class Span(Accumulator):
    ...     state = "low DOUBLE, high DOUBLE"
    ...     result_type = "DOUBLE"
    ...     def start(self):
    ...         return {"low": float("inf"), "high": float("-inf")}
    ...     def add(self, buffer, value):
    ...         return {"low": min(buffer["low"], value), "high": max(buffer["high"], value)}
    ...     def merge(self, one, other):
    ...         return {"low": min(one["low"], other["low"]), "high": max(one["high"], other["high"])}
    ...     def result(self, buffer):
    ...         return buffer["high"] - buffer["low"]
    >>> Span("amount")
    Span('amount')
    """

    function = AccumulatorFunction

    @abstractmethod
    def start(self) -> Buffer:
        """The buffer of no rows."""

    @abstractmethod
    def add(self, buffer: Buffer, value: Any) -> Buffer:
        """Add one row: its value, or a dict of its values when the aggregate reads several."""

    @abstractmethod
    def merge(self, one: Buffer, other: Buffer) -> Buffer:
        """Merge the buffers of two parts of a group."""

    @abstractmethod
    def result(self, buffer: Buffer) -> Any:
        """The value of a group."""


@experimental
class VectorAccumulator(UserDefinedAggregate):
    """A user-defined aggregate made of Polars expressions: as fast as the built-in ones.

    >>> class Product(VectorAccumulator):
    ...     state = "product DOUBLE"
    ...     result_type = "DOUBLE"
    ...     def partial(self, value):
    ...         return {"product": value.product()}
    ...     def merge(self, buffer):
    ...         return {"product": buffer["product"].product()}
    ...     def result(self, buffer):
    ...         return buffer["product"]
    >>> Product("factor").where("factor > 0")
    Product('factor').where('factor > 0')
    """

    function = VectorFunction

    @abstractmethod
    def partial(self, value: Any) -> Mapping[str, pl.Expr]:
        """The fields of ``state`` over the rows of a group; ``value`` is an expression, or a dict if several are read.

        The fields of no rows must change nothing when they are merged.
        """

    @abstractmethod
    def merge(self, buffer: Mapping[str, pl.Expr]) -> Mapping[str, pl.Expr]:
        """The fields of ``state`` over several partials of a group."""

    @abstractmethod
    def result(self, buffer: Mapping[str, pl.Expr]) -> pl.Expr:
        """The value, over one partial."""
