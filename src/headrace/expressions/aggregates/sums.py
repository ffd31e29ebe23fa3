"""sum and avg: exact for integers and decimals, whatever the order of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import polars as pl

from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.operands import LARGEST_PRECISION, Operand, is_float, is_integer
from headrace.expressions.rows import RowExpression

_WHOLE = pl.Decimal(LARGEST_PRECISION, 0)
# Sums of decimals with more digits than this could pass 38 digits; they are kept as two halves.
_LARGEST_SINGLE_SUM = 28
_HALF = 10**19


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of a number over the rows that have one."""

    argument: RowExpression

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        return _sum_types(of.number(self.argument, "sum").dtype)

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        operand = of.number(self.argument, "sum")
        return _sum_parts(Operand(rows.kept(operand.value), operand.dtype))

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return {suffix: _sum_or_null(of.state(suffix), of.state(suffix).sum()) for suffix in self.state_types(of)}

    def result(self, of: Binding) -> pl.Expr:
        return _as_result(_total(of, of.number(self.argument, "sum").dtype), self.result_type(of))

    def result_type(self, of: Binding) -> pl.DataType:
        dtype = of.number(self.argument, "sum").dtype
        if isinstance(dtype, pl.Decimal):
            return pl.Decimal(min(LARGEST_PRECISION, dtype.precision + 10), dtype.scale)
        return pl.Int64() if is_integer(dtype) else pl.Float64()

    def overflowed(self, of: Binding) -> pl.Expr | None:
        """Whether a sum is beyond its type's range; one of floats never is."""
        return None if is_float(self.result_type(of)) else _lost(self, of)


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of a number over the rows that have one."""

    argument: RowExpression

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        return {**_sum_types(of.number(self.argument, "avg").dtype), "count": pl.Int64()}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        operand = of.number(self.argument, "avg")
        kept = rows.kept(operand.value)
        return {**_sum_parts(Operand(kept, operand.dtype)), "count": kept.count().cast(pl.Int64)}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return {suffix: _sum_or_null(of.state(suffix), of.state(suffix).sum()) for suffix in self.state_types(of)}

    def result(self, of: Binding) -> pl.Expr:
        dtype = of.number(self.argument, "avg").dtype
        return _as_result(_average(_total(of, dtype), of.state("count"), dtype), self.result_type(of))

    def result_type(self, of: Binding) -> pl.DataType:
        dtype = of.number(self.argument, "avg").dtype
        if not isinstance(dtype, pl.Decimal):
            return pl.Float64()
        return pl.Decimal(min(LARGEST_PRECISION, dtype.precision + 4), min(LARGEST_PRECISION, dtype.scale + 4))

    def overflowed(self, of: Binding) -> pl.Expr | None:
        """Whether an average of decimals, or the sum on the way to it, has more digits than its type."""
        return None if is_float(self.result_type(of)) else _lost(self, of)


def _lost(calculation: Sum | Average, of: Binding) -> pl.Expr:
    """Whether there are values but no result."""
    kept = next(iter(calculation.state_types(of)))
    return of.state(kept).is_not_null() & calculation.result(of).is_null()


def _sum_types(dtype: pl.DataType) -> dict[str, pl.DataType]:
    if is_float(dtype):
        return {"sum": pl.Float64()}
    if not isinstance(dtype, pl.Decimal):
        return {"sum": _WHOLE}
    if dtype.precision <= _LARGEST_SINGLE_SUM:
        return {"sum": pl.Decimal(LARGEST_PRECISION, dtype.scale)}
    return {"sum_high": _WHOLE, "sum_low": _WHOLE}


def _sum_parts(operand: Operand) -> dict[str, pl.Expr]:
    value, dtype = operand.value, operand.dtype
    if is_float(dtype):
        return {"sum": _sum_or_null(value, value.cast(pl.Float64).sum())}
    if not isinstance(dtype, pl.Decimal):
        return {"sum": _sum_or_null(value, value.cast(pl.Int128).sum()).cast(_WHOLE)}
    if dtype.precision <= _LARGEST_SINGLE_SUM:
        return {"sum": _sum_or_null(value, value.sum())}
    unscaled = value.to_physical()
    return {
        "sum_high": _sum_or_null(value, (unscaled // _HALF).sum()).cast(_WHOLE),
        "sum_low": _sum_or_null(value, (unscaled % _HALF).sum()).cast(_WHOLE),
    }


def _sum_or_null(value: pl.Expr, total: pl.Expr) -> pl.Expr:
    # Polars sums nothing to zero, SQL to null.
    return pl.when(value.count() > 0).then(total)


def _total(of: Binding, dtype: pl.DataType) -> pl.Expr:
    """The sum: of floats a float, else an unscaled Int128; null if there was no value or it has over 38 digits."""
    if is_float(dtype):
        return of.state("sum")
    if set(_sum_types(dtype)) == {"sum"}:
        return of.state("sum").to_physical()
    high, low = (of.state(half).to_physical() for half in ("sum_high", "sum_low"))
    carried = high + low // _HALF
    inside = (carried >= -_HALF) & (carried < _HALF)
    return pl.when(inside).then(carried * _HALF + low % _HALF)


def _average(total: pl.Expr, count: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if not isinstance(dtype, pl.Decimal):
        return total.cast(pl.Float64) / count
    # Four more digits than the sum, rounded half away from zero, without ever passing 128 bits on the way.
    wide, added = count.cast(pl.Int128), 10 ** min(4, LARGEST_PRECISION - dtype.scale)
    whole, rest = total.abs() // wide, total.abs() % wide
    rounded = whole * added + (rest * added * 2 + wide) // (wide * 2)
    fitting = whole < 10**LARGEST_PRECISION // added
    return pl.when(fitting).then(pl.when(total < 0).then(rounded * -1).otherwise(rounded))


def _as_result(total: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The total in the result's type, null where it does not fit; ``overflowed`` tells that from no values."""
    if not isinstance(dtype, pl.Decimal):
        return total.cast(dtype, strict=False)
    fitting = pl.when(total.abs() < 10**dtype.precision).then(total).cast(_WHOLE)
    # Whole times 0.01 is the same digits with two of them after the point; the digits themselves do not change.
    return (fitting * pl.lit(Decimal(1).scaleb(-dtype.scale))).cast(dtype)
