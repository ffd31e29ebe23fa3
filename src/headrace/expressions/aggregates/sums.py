"""count, sum, avg, stddev, variance and ewm; sums of integers and decimals are exact in any order of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.expressions.aggregates.aggregate import (
    Aggregate,
    AggregateFunction,
    AggregateScope,
    BoundAggregate,
    parse_argument,
)
from headrace.expressions.arithmetic import WHOLE, as_number
from headrace.expressions.operands import LARGEST_PRECISION, Operand
from headrace.stability import experimental

# Sums of decimals with more digits than this could pass 38 digits; they are stored as two halves.
_LARGEST_SINGLE_SUM = 28
_HALF = 10**19


@dataclass(frozen=True, slots=True)
class Count(AggregateFunction):
    """The number of rows or, with an argument, of the rows where it is not null."""

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        if self.arguments:
            # What a sum adds up counts, also beyond the type of the argument.
            number = scope.select(self.argument.operand(scope.schema, exact=True).value).count()
        else:
            number = pl.len() if scope.condition is None else scope.select(scope.time).len()
        count = scope.state("count")
        partial, merge = {"count": number.cast(pl.Int64)}, {"count": count.sum()}
        return BoundAggregate({"count": pl.Int64()}, partial, merge, count, pl.Int64())


@dataclass(frozen=True, slots=True)
class CountDistinct(AggregateFunction):
    """The exact number of distinct values; the state holds all of them."""

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        operand = scope.ordered(self.argument, "count(DISTINCT ...)")
        partial = {"values": scope.select(operand.value).drop_nulls().unique().implode()}
        merge = {"values": scope.elements("values").unique().implode()}
        number = scope.state("values").list.len().cast(pl.Int64)
        return BoundAggregate({"values": pl.List(operand.dtype)}, partial, merge, number, pl.Int64())


@dataclass(frozen=True, slots=True)
class Sum(AggregateFunction):
    """The sum of the values that are not null."""

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        operand, dtype = scope.summed(self.argument, "sum")
        result_type: pl.DataType = pl.Int64() if dtype.is_integer() else pl.Float64()
        if isinstance(dtype, pl.Decimal):
            result_type = pl.Decimal(min(LARGEST_PRECISION, dtype.precision + 10), dtype.scale)
        return _bind_sum(scope, operand, result_type)


@dataclass(frozen=True, slots=True)
class Average(AggregateFunction):
    """The mean of the values that are not null."""

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        operand, dtype = scope.summed(self.argument, "avg")
        result_type: pl.DataType = pl.Float64()
        if isinstance(dtype, pl.Decimal):
            digits = (dtype.precision + 4, dtype.scale + 4)
            result_type = pl.Decimal(*(min(LARGEST_PRECISION, each) for each in digits))
        return _bind_sum(scope, operand, result_type, average_of=dtype)


def _bind_sum(
    scope: AggregateScope, operand: Operand, result_type: pl.DataType, average_of: pl.DataType | None = None
) -> BoundAggregate:
    """A sum, or an average of numbers of a type; the sum comes first in the state."""
    value = scope.select(operand.value)
    types, sums, total = _sums(scope, value, operand.dtype)
    first = next(iter(types))
    partial = {name: _sum_or_null(value, each).cast(types[name]) for name, each in sums.items()}
    if average_of is not None:
        types["count"], partial["count"] = pl.Int64(), value.count().cast(pl.Int64)
        total = _average(total, scope.state("count"), average_of)
    merge = {name: _sum_or_null(scope.state(name), scope.state(name).sum()) for name in types}
    result = total.cast(result_type) if result_type.is_float() else as_number(total, result_type)
    # There are values but no result; a float never overflows.
    overflowed = None if result_type.is_float() else scope.state(first).is_not_null() & result.is_null()
    return BoundAggregate(types, partial, merge, result, result_type, overflowed)


def _sums(
    scope: AggregateScope, value: pl.Expr, dtype: pl.DataType
) -> tuple[dict[str, pl.DataType], dict[str, pl.Expr], pl.Expr]:
    """The types of the state columns, the sums of values in them, and their total.

    The total of floats is a float, else an unscaled Int128; null if there was no value or it has over 38 digits.
    """
    if dtype.is_float():
        return {"sum": pl.Float64()}, {"sum": value.cast(pl.Float64).sum()}, scope.state("sum")
    if not isinstance(dtype, pl.Decimal):
        return {"sum": WHOLE}, {"sum": value.cast(pl.Int128).sum()}, scope.state("sum").to_physical()
    if dtype.precision <= _LARGEST_SINGLE_SUM:
        stored = pl.Decimal(LARGEST_PRECISION, dtype.scale)
        return {"sum": stored}, {"sum": value.sum()}, scope.state("sum").to_physical()
    unscaled = value.to_physical()
    high, low = (scope.state(half).to_physical() for half in ("sum_high", "sum_low"))
    carried = high + low // _HALF
    inside = (carried >= -_HALF) & (carried < _HALF)
    return (
        {"sum_high": WHOLE, "sum_low": WHOLE},
        {"sum_high": (unscaled // _HALF).sum(), "sum_low": (unscaled % _HALF).sum()},
        pl.when(inside).then(carried * _HALF + low % _HALF),
    )


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


@dataclass(frozen=True, slots=True)
class Variance(AggregateFunction):
    """The variance of a number, or its root; of a sample (one value: null) or of the population (one value: 0.0).

    Means are computed from the differences to one of the values: large values would cost digits, and could overflow.
    Where the sum of squares is beyond a double, or there is an infinity or NaN, the result is NaN, as in Spark.
    """

    name: str
    is_sample: bool
    is_root: bool

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        value = scope.select(scope.number(self.argument, self.name).value.cast(pl.Float64))
        count, mean, distances = map(scope.state, ("count", "mean", "distances"))
        first = value.drop_nulls().first()
        centre = first + (value - first).mean()
        near = mean.drop_nulls().first()
        common = near + ((mean - near) * count).sum() / count.sum()
        between = ((mean - common) ** 2 * count).sum()
        degrees = count - int(self.is_sample)
        known = pl.when(distances.is_finite()).then(distances / degrees).otherwise(float("nan"))
        variance = pl.when(degrees > 0).then(known)
        return BoundAggregate(
            types={"count": pl.Int64(), "mean": pl.Float64(), "distances": pl.Float64()},
            partial={"count": value.count().cast(pl.Int64), "mean": centre, "distances": ((value - centre) ** 2).sum()},
            merge={"count": count.sum(), "mean": common, "distances": distances.sum() + between},
            result=variance.sqrt() if self.is_root else variance,
            result_type=pl.Float64(),
        )


@dataclass(frozen=True, slots=True)
class ExponentialMean(AggregateFunction):
    """A mean in which the weight of a value halves for every half-life that it is older than the newest one."""

    half_life: int

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        value = scope.select(scope.number(self.argument, "ewm").value.cast(pl.Float64))
        at = scope.select(scope.time).filter(value.is_not_null())
        time, total, weight = map(scope.state, ("time", "sum", "weight"))
        near, older = self._weight(at), self._weight(time)
        return BoundAggregate(
            types={"time": pl.Int64(), "sum": pl.Float64(), "weight": pl.Float64()},
            partial={"time": at.max(), "sum": (value.drop_nulls() * near).sum(), "weight": near.sum()},
            merge={"time": time.max(), "sum": (total * older).sum(), "weight": (weight * older).sum()},
            result=pl.when(weight > 0).then(total / weight),
            result_type=pl.Float64(),
        )

    def _weight(self, time: pl.Expr) -> pl.Expr:
        return ((time - time.max()) * (log(2) / self.half_life)).exp()


@experimental
def ewm(value: str, *, half_life: Duration) -> Aggregate:
    """The exponentially weighted mean by event time: the weight of a value halves with every ``half_life`` of age.

    >>> ewm("price", half_life="10 minutes")
    hr.ewm('price', half_life='10 minutes')
    """
    length = positive_microseconds(half_life, argument="half_life")
    text = f"hr.ewm({value!r}, half_life={spoken(length)!r})"
    return Aggregate(text, ExponentialMean((parse_argument(value),), length), code=text)
