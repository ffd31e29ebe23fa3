"""min, max, first, last, min_by and max_by. NaN is the greatest value, and both zeros are 0.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.expressions.aggregates.aggregate import AggregateFunction, AggregateScope, BoundAggregate, canonical
from headrace.expressions.operands import Operand, is_float

Which = Literal["min", "max"]


@dataclass(frozen=True, slots=True)
class Extreme(AggregateFunction):
    """The least or the greatest value."""

    which: Which

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        operand, name = scope.ordered(self.argument, self.which), str(self.which)
        partial = {name: extreme(self.which, scope.select(operand.value), operand.dtype)}
        merge = {name: extreme(self.which, scope.state(name), operand.dtype)}
        return BoundAggregate({name: operand.dtype}, partial, merge, scope.state(name), operand.dtype)


@dataclass(frozen=True, slots=True)
class ValueAtExtreme(AggregateFunction):
    """The value of the row with the least or greatest event time, or second argument; null is a value like any other.

    Of rows that tie, the least value is taken for ``min`` and the greatest for ``max``; null is less than any other
    value. So the result does not depend on the order in which rows arrive.
    """

    name: str
    which: Which

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        value, *others = (scope.ordered(argument, self.name) for argument in self.arguments)
        by = others[0] if others else Operand(scope.time, pl.Int64())

        def chosen(by_column: pl.Expr, values: pl.Expr) -> dict[str, pl.Expr]:
            best = extreme(self.which, by_column, by.dtype)
            tied = values.filter(by_column == best)
            found = extreme(self.which, tied, value.dtype)
            if self.which == "min":
                found = pl.when(tied.null_count() == 0).then(found)
            return {"by": best, "value": found}

        return BoundAggregate(
            types={"by": by.dtype, "value": value.dtype},
            partial=chosen(scope.select(by.value), scope.select(value.value)),
            merge=chosen(scope.state("by"), scope.state("value")),
            result=scope.state("value"),
            result_type=value.dtype,
        )


def extreme(which: Which, value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The least or greatest of a group's values, in Spark's order."""
    if not is_float(dtype):
        return value.min() if which == "min" else value.max()
    # NaN is the greatest: nan_max gives it if there is one, min gives it only if there is nothing else.
    return canonical(value.min() if which == "min" else value.nan_max(), dtype)
