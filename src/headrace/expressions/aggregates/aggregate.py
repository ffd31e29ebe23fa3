"""An aggregate of a group of rows: rows become partials, partials merge, and a partial gives the result."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.aggregates.calculation import Calculation
from headrace.expressions.aggregates.sums import Average, Sum
from headrace.expressions.operands import Schema
from headrace.expressions.rows import RowExpression, check_condition


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A calculation under the name of its result, over all rows or those that meet a condition.

    >>> from headrace.expressions import parse_aggregate
    >>> rows = pl.DataFrame({"shop": ["a", "a", "b"], "amount": [1, 2, None], "at": [0, 1, 0]})
    >>> total = parse_aggregate("sum(amount)", name="total")
    >>> partials = rows.group_by("shop", maintain_order=True).agg(**total.partial(rows.schema, pl.col("at")))
    >>> partials.select("shop", total.result(rows.schema)).rows()
    [('a', 3), ('b', None)]
    """

    name: str
    text: str
    """SQL as the author wrote it, or what a value computes and keeps; the state's identity."""
    calculation: Calculation
    condition: RowExpression | None = None
    code: str | None = None
    """As it stands in the author's code; None for SQL."""

    @property
    def said(self) -> str:
        """The aggregate as it stands in the author's code: SQL in quotes, a value as it is."""
        return repr(self.text) if self.code is None else self.code

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the row that the aggregate reads."""
        read = self.calculation.arguments if self.condition is None else (*self.calculation.arguments, self.condition)
        return frozenset().union(*(expression.columns for expression in read))

    def partial(self, schema: Schema, time: pl.Expr) -> dict[str, pl.Expr]:
        """The partial columns, as expressions over the rows of a group; ``time`` is event time in microseconds."""
        condition = None if self.condition is None else self.condition.truth(schema)
        return self._named(self.calculation.partial(self._bound(schema), Rows(time, condition)))

    def merge(self, schema: Schema) -> dict[str, pl.Expr]:
        """The partial columns of several partials made one, as expressions over the partials of a group."""
        return self._named(self.calculation.merge(self._bound(schema)))

    def result(self, schema: Schema) -> pl.Expr:
        """The aggregate's value, as an expression over one partial; it carries the aggregate's name."""
        return self.calculation.result(self._bound(schema)).alias(self.name)

    def result_type(self, schema: Schema) -> pl.DataType:
        """The type of the result, as Spark's aggregate of the same text has it."""
        if self.condition is not None:
            check_condition(self.condition, schema)
        return self.calculation.result_type(self._bound(schema))

    def state_types(self, schema: Schema) -> dict[str, pl.DataType]:
        """The names and types of the partial columns; all of them have an Arrow and a Spark counterpart."""
        types = self.calculation.state_types(self._bound(schema))
        return {f"{self.name}.{suffix}": dtype for suffix, dtype in types.items()}

    def overflowed(self, schema: Schema) -> pl.Expr | None:
        """Whether the value of a partial is beyond its type's range and must not be emitted; None if it never is."""
        if not isinstance(self.calculation, Sum | Average):
            return None
        return self.calculation.overflowed(self._bound(schema))

    def _bound(self, schema: Schema) -> Binding:
        return Binding(self.name, schema)

    def _named(self, parts: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {f"{self.name}.{suffix}": part for suffix, part in parts.items()}
