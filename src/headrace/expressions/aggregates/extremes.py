"""min and max: NaN is the greatest, and both zeros are 0.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.expressions.aggregates.binding import Binding, Rows, canonical
from headrace.expressions.operands import is_float
from headrace.expressions.rows import RowExpression


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least or the greatest value."""

    function: Literal["min", "max"]
    argument: RowExpression

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        return {self.function: self.result_type(of)}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        operand = of.ordered(self.argument, self.function)
        return {self.function: extreme(self.function, rows.kept(operand.value), operand.dtype)}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return {self.function: extreme(self.function, of.state(self.function), self.result_type(of))}

    def result(self, of: Binding) -> pl.Expr:
        return of.state(self.function)

    def result_type(self, of: Binding) -> pl.DataType:
        return of.ordered(self.argument, self.function).dtype


def extreme(function: Literal["min", "max"], value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The least or greatest of a group's values, in Spark's order."""
    if not is_float(dtype):
        return value.min() if function == "min" else value.max()
    # NaN is the greatest: nan_max gives it if there is one, min gives it only if there is nothing else.
    return canonical(value.min() if function == "min" else value.nan_max(), dtype)
