"""min, max, first, last, min_by and max_by. NaN is the greatest value, and both zeros are 0.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.expressions.aggregates.aggregate import AggregateScope, FilteredRows, UnaryFunction, canonical
from headrace.expressions.operands import is_float
from headrace.expressions.rows import RowExpression

Which = Literal["min", "max"]


@dataclass(frozen=True, slots=True)
class Extreme(UnaryFunction):
    """The least or the greatest value."""

    which: Which

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        return {self.which: scope.ordered(self.argument, self.which).dtype}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        operand = scope.ordered(self.argument, self.which)
        return {self.which: extreme(self.which, rows.select(operand.value), operand.dtype)}

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        return {self.which: extreme(self.which, scope.state(self.which), self.result_type(scope))}


@dataclass(frozen=True, slots=True)
class ValueAtExtreme(UnaryFunction):
    """The value of the row with the least or greatest event time, or ``by``; null is a value like any other.

    Of rows with the same time (or ``by``), the least value is taken for ``min`` and the greatest for ``max``; null is
    less than any other value. So the result does not depend on the order in which rows arrive.
    """

    name: str
    which: Which
    by: RowExpression | None = None

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,) if self.by is None else (self.argument, self.by)

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        by = pl.Int64() if self.by is None else scope.ordered(self.by, self.name).dtype
        return {"by": by, "value": scope.ordered(self.argument, self.name).dtype}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        by = rows.time if self.by is None else scope.ordered(self.by, self.name).value
        return self._chosen(scope, rows.select(by), rows.select(scope.ordered(self.argument, self.name).value))

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        return self._chosen(scope, scope.state("by"), scope.state("value"))

    def result(self, scope: AggregateScope) -> pl.Expr:
        return scope.state("value")

    def result_type(self, scope: AggregateScope) -> pl.DataType:
        return self.state_types(scope)["value"]

    def _chosen(self, scope: AggregateScope, by: pl.Expr, value: pl.Expr) -> dict[str, pl.Expr]:
        types = self.state_types(scope)
        best = extreme(self.which, by, types["by"])
        tied = value.filter(by == best)
        chosen = extreme(self.which, tied, types["value"])
        if self.which == "min":
            chosen = pl.when(tied.null_count() == 0).then(chosen)
        return {"by": best, "value": chosen}


def extreme(which: Which, value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The least or greatest of a group's values, in Spark's order."""
    if not is_float(dtype):
        return value.min() if which == "min" else value.max()
    # NaN is the greatest: nan_max gives it if there is one, min gives it only if there is nothing else.
    return canonical(value.min() if which == "min" else value.nan_max(), dtype)
