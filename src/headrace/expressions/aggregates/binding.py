"""What a calculation is given: its state's columns, its operands, and the rows that it counts."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.operands import Operand, Schema, is_float, is_number
from headrace.expressions.rows import RowExpression


@dataclass(frozen=True, slots=True)
class Binding:
    """A calculation's place: the name of its aggregate and the schema of the rows."""

    name: str
    schema: Schema

    def state(self, suffix: str) -> pl.Expr:
        """A state column."""
        return pl.col(f"{self.name}.{suffix}")

    def elements(self, suffix: str) -> pl.Expr:
        """The elements of a state column of lists, those of all partials one after the other."""
        return self.state(suffix).explode(empty_as_null=False, keep_nulls=False)

    def operand(self, argument: RowExpression) -> Operand:
        """A value of each row, of any type."""
        return Operand(argument.to_polars(self.schema), argument.type(self.schema))

    def number(self, argument: RowExpression, function: str) -> Operand:
        """A value of each row that must be a number."""
        operand = self.operand(argument)
        if not is_number(operand.dtype):
            raise self._wrong_type(argument, operand.dtype, function, "numbers")
        return operand

    def ordered(self, argument: RowExpression, function: str) -> Operand:
        """A value of each row that must have an order."""
        operand = self.operand(argument)
        if operand.dtype.is_nested() or operand.dtype == pl.Null():
            raise self._wrong_type(argument, operand.dtype, function, "values with an order")
        return operand

    def canonical(self, argument: RowExpression, function: str) -> Operand:
        """A value of each row that must have an order, with one zero and one NaN."""
        operand = self.ordered(argument, function)
        return Operand(canonical(operand.value, operand.dtype), operand.dtype)

    def _wrong_type(self, argument: RowExpression, dtype: pl.DataType, function: str, needed: str) -> DefinitionError:
        return DefinitionError(
            "AGGREGATE_TYPE",
            f"aggregate '{self.name}': '{argument.text}' is {dtype}, and {function} is defined for {needed}. "
            "Use another column or function.",
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a group, or those of them that meet the aggregate's condition."""

    time: pl.Expr
    condition: pl.Expr | None

    def kept(self, value: pl.Expr) -> pl.Expr:
        """A value of those rows that count."""
        return value if self.condition is None else value.filter(self.condition)

    @property
    def times(self) -> pl.Expr:
        """The event times of the rows that count, in microseconds."""
        return self.kept(self.time)

    @property
    def count(self) -> pl.Expr:
        """How many rows count."""
        number = pl.len() if self.condition is None else self.times.len()
        return number.cast(pl.Int64)


def canonical(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A value with one zero and one NaN, so that equal floats are the same bits.

    >>> pl.select(canonical(pl.lit(-0.0), pl.Float64())).item()
    0.0
    """
    if not is_float(dtype):
        return value
    zero, nan = pl.lit(0.0, dtype=dtype), pl.lit(float("nan"), dtype=dtype)
    return pl.when(value == 0.0).then(zero).when(value.is_nan()).then(nan).otherwise(value)
