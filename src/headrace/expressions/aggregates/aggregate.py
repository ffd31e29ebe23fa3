"""An aggregate over groups of rows: rows become partials, partials merge, and a partial gives the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from headrace.errors import DefinitionError
from headrace.expressions.operands import Operand, Schema
from headrace.expressions.rows import RowExpression, parse_row_expression
from headrace.key_hash import canonical_value

Part = TypeVar("Part")
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AggregateScope:
    """What an aggregate is bound to: the schema of its rows, and which of them it takes."""

    name: str
    schema: Schema
    time: pl.Expr
    """The event time of a row, in microseconds."""
    condition: pl.Expr | None

    def select(self, value: pl.Expr) -> pl.Expr:
        return value if self.condition is None else value.filter(self.condition)

    def state(self, suffix: str) -> pl.Expr:
        return pl.col(f"{self.name}.{suffix}")

    def elements(self, suffix: str) -> pl.Expr:
        return self.state(suffix).explode(empty_as_null=False, keep_nulls=False)

    def number(self, argument: RowExpression, function: str) -> Operand:
        operand = argument.operand(self.schema)
        if not operand.dtype.is_numeric():
            raise self._wrong_type(argument, operand.dtype, function, "numbers")
        return operand

    def summed(self, argument: RowExpression, function: str) -> tuple[Operand, pl.DataType]:
        """A number as it is added up, with arithmetic that does not overflow, and its type."""
        dtype = self.number(argument, function).dtype
        return argument.operand(self.schema, exact=not dtype.is_float()), dtype

    def ordered(self, argument: RowExpression, function: str) -> Operand:
        operand = argument.operand(self.schema)
        if operand.dtype.is_nested() or operand.dtype == pl.Null():
            raise self._wrong_type(argument, operand.dtype, function, "values with an order")
        return operand

    def canonical(self, argument: RowExpression, function: str) -> Operand:
        operand = self.ordered(argument, function)
        return Operand(canonical_value(operand.value, operand.dtype), operand.dtype)

    def _wrong_type(self, argument: RowExpression, dtype: pl.DataType, function: str, needed: str) -> DefinitionError:
        return DefinitionError(
            "AGGREGATE_TYPE",
            f"aggregate '{self.name}': '{argument.text}' is {dtype}, and {function} is defined for {needed}. "
            "Use another column or function.",
        )


@dataclass(frozen=True, slots=True)
class BoundAggregate:
    """An aggregate function as Polars expressions over rows of one schema; its state columns have short names."""

    types: dict[str, pl.DataType]
    partial: dict[str, pl.Expr]
    """The state columns over the rows of a group."""
    merge: dict[str, pl.Expr]
    """The state columns over several partials of a group."""
    result: pl.Expr
    """The value, over one partial."""
    result_type: pl.DataType
    overflowed: pl.Expr | None = None
    """Whether the value of a partial is out of its type's range; None if that cannot happen."""


@dataclass(frozen=True, slots=True)
class AggregateFunction(ABC):
    """What an aggregate computes of its rows, whatever their grouping; no rows change nothing.

    Rows and partials of a group come in the order of arrival, which breaks ties of event time.
    """

    arguments: tuple[RowExpression, ...]
    gives_rows: ClassVar[bool] = False
    """Whether the result is a list of rows, each of which becomes a row of the output."""

    @property
    def argument(self) -> RowExpression:
        return self.arguments[0]

    @abstractmethod
    def bind(self, scope: AggregateScope) -> BoundAggregate:
        """The function over rows of the scope's schema; an error if the arguments have other types than it takes."""

    def check(self, scope: AggregateScope, bound: BoundAggregate) -> None:  # noqa: B027 - few check
        """Find, before any row is read, what else is wrong with a function that a user has written."""


@dataclass(frozen=True, slots=True, repr=False)
class Aggregate:
    """An aggregate function over all rows or those that meet a condition; ``.agg(name=...)`` names it.

    >>> from headrace.expressions import parse_aggregate
    >>> rows = pl.DataFrame({"shop": ["a", "a", "b"], "amount": [1, 2, None], "at": [0, 1, 0]})
    >>> total = parse_aggregate("sum(amount)", name="total")
    >>> partials = rows.group_by("shop", maintain_order=True).agg(**total.partial(rows.schema, pl.col("at")))
    >>> partials.select("shop", total.result(rows.schema)).rows()
    [('a', 3), ('b', None)]
    """

    text: str
    """SQL text, or what a value of ``hr`` computes with all its settings; the identity of the state."""
    function: AggregateFunction
    code: str
    """The aggregate as it is written in Python: SQL in quotes, a value as it is."""
    condition: RowExpression | None = None
    name: str = ""
    """The name of the result."""

    def where(self, condition: str) -> Aggregate:
        """The same over the rows that meet a condition, like ``FILTER (WHERE ...)`` in SQL text.

        >>> from headrace.expressions.aggregates.chosen_values import collect_set
        >>> collect_set("shop", at_most=5).where("amount > 0")
        hr.collect_set('shop', at_most=5).where('amount > 0')
        """
        both = condition if self.condition is None else f"({self.condition.text}) AND ({condition})"
        call = f".where({condition!r})"
        return replace(self, text=self.text + call, code=self.code + call, condition=parse_row_expression(both))

    def __repr__(self) -> str:
        return self.code

    @property
    def columns(self) -> frozenset[str]:
        read = self.function.arguments if self.condition is None else (*self.function.arguments, self.condition)
        return frozenset().union(*(expression.columns for expression in read))

    def partial(self, schema: Schema, time: pl.Expr) -> dict[str, pl.Expr]:
        """The partial columns, as expressions over the rows of a group; ``time`` is event time in microseconds."""
        return self._named(self.function.bind(self._scope(schema, time)).partial)

    def merge(self, schema: Schema) -> dict[str, pl.Expr]:
        return self._named(self._bound(schema).merge)

    def result(self, schema: Schema) -> pl.Expr:
        return self._bound(schema).result.alias(self.name)

    def result_type(self, schema: Schema) -> pl.DataType:
        """The type of the result, the same as that of Spark's aggregate of this text."""
        bound = self._bound(schema)
        self.function.check(self._scope(schema), bound)
        return bound.result_type

    def state_types(self, schema: Schema) -> dict[str, pl.DataType]:
        return self._named(self._bound(schema).types)

    def overflowed(self, schema: Schema) -> pl.Expr | None:
        return self._bound(schema).overflowed

    def _bound(self, schema: Schema) -> BoundAggregate:
        return _bound(self, tuple(schema.items()))

    def _scope(self, schema: Schema, time: pl.Expr | None = None) -> AggregateScope:
        condition = None if self.condition is None else self.condition.truth(schema)
        return AggregateScope(self.name, schema, pl.lit(0) if time is None else time, condition)

    def _named(self, parts: dict[str, Part]) -> dict[str, Part]:
        return {f"{self.name}.{suffix}": part for suffix, part in parts.items()}


@lru_cache(maxsize=1024)
def _bound(aggregate: Aggregate, schema: tuple[tuple[str, pl.DataType], ...]) -> BoundAggregate:
    """The expressions that read no event time, made once: every batch of a key group asks for them."""
    return aggregate.function.bind(aggregate._scope(dict(schema)))


def map_groups(value: pl.Expr, function: Callable[[pl.Series], pl.Series], dtype: pl.DataType) -> pl.Expr:
    """A function of the values of each group; it gets a column of lists, one for each group."""
    return value.implode().map_batches(function, dtype, is_elementwise=True)


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """A column of lists: the elements of all lists concatenated, and the length of each list."""

    elements: pl.Series
    lengths: Integers

    @staticmethod
    def of(column: pl.Series) -> Lists:
        """Take a column of lists apart.

        >>> Lists.of(pl.Series([["a"], [], ["b", "c"]])).owners.tolist()
        [0, 2, 2]
        """
        elements = column.explode(empty_as_null=False, keep_nulls=False)
        return Lists(elements, column.list.len().fill_null(0).to_numpy().astype(np.int64))

    @property
    def owners(self) -> Integers:
        """The number of the list that each element is in."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def series(self) -> pl.Series:
        offsets = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        lists = pa.LargeListArray.from_arrays(pa.array(offsets), self.elements.to_arrow())
        return pl.Series(values=lists, dtype=pl.List(self.elements.dtype))


def parse_argument(text: str) -> RowExpression:
    """Read an expression over one row that reads at least one column."""
    argument = parse_row_expression(text)
    if not argument.columns:
        raise reads_no_column(f"'{text}'")
    return argument


def reads_no_column(what: str) -> DefinitionError:
    """The error for an argument that is the same for every row."""
    return DefinitionError("EXPRESSION_UNSUPPORTED", f"{what} reads no column. Use count(*) to count rows.")
