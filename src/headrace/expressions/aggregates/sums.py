"""sum, avg, stddev, variance and ewm; sums of integers and decimals are exact whatever the order of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import log
from typing import ClassVar

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.expressions.aggregates.aggregate import (
    AggregateScope,
    FilteredRows,
    UnaryFunction,
    UnnamedAggregate,
    parse_argument,
)
from headrace.expressions.operands import LARGEST_PRECISION, Operand, is_float, is_integer
from headrace.stability import experimental

_WHOLE = pl.Decimal(LARGEST_PRECISION, 0)
# Sums of decimals with more digits than this could pass 38 digits; they are stored as two halves.
_LARGEST_SINGLE_SUM = 28
_HALF = 10**19


@dataclass(frozen=True, slots=True)
class _SumFunction(UnaryFunction):
    """What sum and avg share; the sum comes first in the state."""

    name: ClassVar[str]

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        dtype = self._operand(scope).dtype
        if _is_halved(dtype):
            return {"sum_high": _WHOLE, "sum_low": _WHOLE}
        if isinstance(dtype, pl.Decimal):
            return {"sum": pl.Decimal(LARGEST_PRECISION, dtype.scale)}
        return {"sum": pl.Float64() if is_float(dtype) else _WHOLE}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        operand = self._operand(scope)
        value, dtype = rows.select(operand.value), operand.dtype
        if _is_halved(dtype):
            unscaled = value.to_physical()
            halves = {"sum_high": unscaled // _HALF, "sum_low": unscaled % _HALF}
            return {name: _sum_or_null(value, half.sum()).cast(_WHOLE) for name, half in halves.items()}
        if isinstance(dtype, pl.Decimal):
            return {"sum": _sum_or_null(value, value.sum())}
        if is_float(dtype):
            return {"sum": _sum_or_null(value, value.cast(pl.Float64).sum())}
        return {"sum": _sum_or_null(value, value.cast(pl.Int128).sum()).cast(_WHOLE)}

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        return {name: _sum_or_null(scope.state(name), scope.state(name).sum()) for name in self.state_types(scope)}

    def overflowed(self, scope: AggregateScope) -> pl.Expr | None:
        """Whether there are values but no result; a float never overflows."""
        if is_float(self.result_type(scope)):
            return None
        first = next(iter(self.state_types(scope)))
        return scope.state(first).is_not_null() & self.result(scope).is_null()

    def _operand(self, scope: AggregateScope) -> Operand:
        return scope.number(self.argument, self.name)

    def _total(self, scope: AggregateScope) -> pl.Expr:
        """The sum: of floats a float, else an unscaled Int128; null if there was no value or it has over 38 digits."""
        dtype = self._operand(scope).dtype
        if not _is_halved(dtype):
            return scope.state("sum") if is_float(dtype) else scope.state("sum").to_physical()
        high, low = (scope.state(half).to_physical() for half in ("sum_high", "sum_low"))
        carried = high + low // _HALF
        inside = (carried >= -_HALF) & (carried < _HALF)
        return pl.when(inside).then(carried * _HALF + low % _HALF)


@dataclass(frozen=True, slots=True)
class Sum(_SumFunction):
    """The sum of the values that are not null."""

    name = "sum"

    def result(self, scope: AggregateScope) -> pl.Expr:
        return _as_result(self._total(scope), self.result_type(scope))

    def result_type(self, scope: AggregateScope) -> pl.DataType:
        dtype = self._operand(scope).dtype
        if isinstance(dtype, pl.Decimal):
            return pl.Decimal(min(LARGEST_PRECISION, dtype.precision + 10), dtype.scale)
        return pl.Int64() if is_integer(dtype) else pl.Float64()


@dataclass(frozen=True, slots=True)
class Average(_SumFunction):
    """The mean of the values that are not null."""

    name = "avg"

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        return {**_SumFunction.state_types(self, scope), "count": pl.Int64()}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        count = rows.select(self._operand(scope).value).count()
        return {**_SumFunction.partial(self, scope, rows), "count": count.cast(pl.Int64)}

    def result(self, scope: AggregateScope) -> pl.Expr:
        mean = _average(self._total(scope), scope.state("count"), self._operand(scope).dtype)
        return _as_result(mean, self.result_type(scope))

    def result_type(self, scope: AggregateScope) -> pl.DataType:
        dtype = self._operand(scope).dtype
        if not isinstance(dtype, pl.Decimal):
            return pl.Float64()
        return pl.Decimal(min(LARGEST_PRECISION, dtype.precision + 4), min(LARGEST_PRECISION, dtype.scale + 4))


def _is_halved(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Decimal) and dtype.precision > _LARGEST_SINGLE_SUM


def _sum_or_null(value: pl.Expr, total: pl.Expr) -> pl.Expr:
    # In Polars a sum of no values is zero, in SQL it is null.
    return pl.when(value.count() > 0).then(total)


def _average(total: pl.Expr, count: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if not isinstance(dtype, pl.Decimal):
        return total.cast(pl.Float64) / count
    # Four more digits than the sum, rounded half away from zero, without passing 128 bits on the way.
    wide, added = count.cast(pl.Int128), 10 ** min(4, LARGEST_PRECISION - dtype.scale)
    whole, rest = total.abs() // wide, total.abs() % wide
    rounded = whole * added + (rest * added * 2 + wide) // (wide * 2)
    in_range = whole < 10**LARGEST_PRECISION // added
    return pl.when(in_range).then(pl.when(total < 0).then(rounded * -1).otherwise(rounded))


def _as_result(total: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The total in the result's type, null where it is out of range."""
    if not isinstance(dtype, pl.Decimal):
        return total.cast(dtype, strict=False)
    in_range = pl.when(total.abs() < 10**dtype.precision).then(total).cast(_WHOLE)
    # A whole number times 0.01 has the same digits, two of them after the point.
    return (in_range * pl.lit(Decimal(1).scaleb(-dtype.scale))).cast(dtype)


@dataclass(frozen=True, slots=True)
class Variance(UnaryFunction):
    """The variance of a number, or its root; of a sample (one value: null) or of the population (one value: 0.0).

    The state is count, mean and the sum of squared differences from the mean, so merging loses no digits. Means are
    computed from the differences to one of the values: large values would cost digits, and could overflow. Where the
    sum of squares is beyond a double, or there is an infinity or NaN, the result is NaN, as in Spark.
    """

    name: str
    is_sample: bool
    is_root: bool

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        scope.number(self.argument, self.name)
        return {"count": pl.Int64(), "mean": pl.Float64(), "distances": pl.Float64()}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        value = rows.select(scope.number(self.argument, self.name).value.cast(pl.Float64))
        near = value.drop_nulls().first()
        mean = near + (value - near).mean()
        return {"count": value.count().cast(pl.Int64), "mean": mean, "distances": ((value - mean) ** 2).sum()}

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        count, mean = scope.state("count"), scope.state("mean")
        near = mean.drop_nulls().first()
        common = near + ((mean - near) * count).sum() / count.sum()
        between = ((mean - common) ** 2 * count).sum()
        return {"count": count.sum(), "mean": common, "distances": scope.state("distances").sum() + between}

    def result(self, scope: AggregateScope) -> pl.Expr:
        degrees, distances = scope.state("count") - int(self.is_sample), scope.state("distances")
        known = pl.when(distances.is_finite()).then(distances / degrees).otherwise(float("nan"))
        variance = pl.when(degrees > 0).then(known)
        return variance.sqrt() if self.is_root else variance

    def result_type(self, scope: AggregateScope) -> pl.DataType:
        scope.number(self.argument, self.name)
        return pl.Float64()


@dataclass(frozen=True, slots=True)
class ExponentialMean(UnaryFunction):
    """A mean in which the weight of a value halves for every half-life that it is older than the newest one."""

    half_life: int

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        scope.number(self.argument, "ewm")
        return {"time": pl.Int64(), "sum": pl.Float64(), "weight": pl.Float64()}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        value = rows.select(scope.number(self.argument, "ewm").value.cast(pl.Float64))
        time = rows.times.filter(value.is_not_null())
        weight = self._weight(time)
        return {"time": time.max(), "sum": (value.drop_nulls() * weight).sum(), "weight": weight.sum()}

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        time = scope.state("time")
        weight = self._weight(time)
        sums = {name: (scope.state(name) * weight).sum() for name in ("sum", "weight")}
        return {"time": time.max(), **sums}

    def result(self, scope: AggregateScope) -> pl.Expr:
        return pl.when(scope.state("weight") > 0).then(scope.state("sum") / scope.state("weight"))

    def result_type(self, scope: AggregateScope) -> pl.DataType:
        scope.number(self.argument, "ewm")
        return pl.Float64()

    def _weight(self, time: pl.Expr) -> pl.Expr:
        return ((time - time.max()) * (log(2) / self.half_life)).exp()


@experimental
def ewm(value: str, *, half_life: Duration) -> UnnamedAggregate:
    """The exponentially weighted mean by event time: the weight of a value halves with every ``half_life`` of age.

    >>> ewm("price", half_life="10 minutes")
    hr.ewm('price', half_life='10 minutes')
    """
    length = positive_microseconds(half_life, argument="half_life")
    text = f"hr.ewm({value!r}, half_life={spoken(length)!r})"
    return UnnamedAggregate(text, ExponentialMean(parse_argument(value), length))
