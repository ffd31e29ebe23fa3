"""Running totals that rows can be added to and taken from: counts, sums and averages.

Sums of doubles use double-double arithmetic: a second double holds what rounding took from the first, so that adding a
value and subtracting it again leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.expressions import Aggregate
from headrace.expressions.aggregates.sums import Average, Count, Sum
from headrace.expressions.operands import Schema
from headrace.operators.joins.matching import Int64Array
from headrace.operators.rows import KEY_NUMBER

Float64Array = npt.NDArray[np.float64]
WEIGHT = "__weight"
"""1 for a row that is added, -1 for one that is retracted."""
_WHOLE = pl.Decimal(38, 0)


@dataclass(frozen=True)
class ExactTotal:
    """The numbers that a group keeps for a count, or for a sum or average of integers or decimals."""

    aggregate: Aggregate
    schema: Schema

    @cached_property
    def _counted(self) -> tuple[Aggregate, ...]:
        function, name = self.aggregate.function, f"{self.aggregate.name}.values"
        # A sum without values is null; only the number of values tells it from a sum that is zero.
        values = (replace(self.aggregate, name=name, function=Count((each,))) for each in function.arguments)
        return (self.aggregate, *values) if isinstance(function, Sum) else (self.aggregate,)

    @cached_property
    def parts(self) -> dict[str, pl.DataType]:
        """The state columns, whole numbers; decimals are counted in units of their last digit."""
        types = {name: dtype for each in self._counted for name, dtype in each.state_types(self.schema).items()}
        return {name: _WHOLE if isinstance(dtype, pl.Decimal) else dtype for name, dtype in types.items()}

    def total(self, stored: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """The stored numbers of each group with weighted rows added: one row per group."""
        partial = {name: part for each in self._counted for name, part in each.partial(self.schema, pl.lit(0)).items()}
        signed = [stored.select(KEY_NUMBER, *(_integer(name) for name in self.parts))]
        for weight in (1, -1):
            given = rows.filter(pl.col(WEIGHT) == weight).group_by(KEY_NUMBER).agg(**partial)
            signed.append(given.select(KEY_NUMBER, *(_integer(name) * weight for name in self.parts)))
        totals = pl.concat(signed).group_by(KEY_NUMBER).agg(pl.col(name).sum() for name in self.parts)
        return totals.with_columns(pl.col(name).cast(dtype) for name, dtype in self.parts.items())

    @property
    def result(self) -> pl.Expr:
        result = self.aggregate.result(self.schema)
        if isinstance(self.aggregate.function, Count):
            return result
        *_, values = self.parts  # the last part of sums and averages is the number of values
        return pl.when(pl.col(values) > 0).then(result)


def _integer(name: str) -> pl.Expr:
    return pl.col(name).to_physical().cast(pl.Int128).fill_null(0)


@dataclass(frozen=True)
class DoubleTotal:
    """The same for doubles, in double-double arithmetic; NaN and infinities are counted, so they can be retracted."""

    aggregate: Aggregate
    schema: Schema

    @cached_property
    def parts(self) -> dict[str, pl.DataType]:
        """The sum in two parts, how many values there are, and how many of them are not finite."""
        counts = {self._part(suffix): pl.Int64() for suffix in ("count", "nan", "up", "down")}
        return {self._part("sum"): pl.Float64(), self._part("low"): pl.Float64(), **counts}

    def _part(self, suffix: str) -> str:
        return f"{self.aggregate.name}.{suffix}"

    def total(self, stored: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        argument = argument_of(self.aggregate, self.schema).cast(pl.Float64)
        given = rows.select(KEY_NUMBER, WEIGHT, argument.alias("value")).drop_nulls("value")
        value, weight = pl.col("value"), pl.col(WEIGHT)
        signed = {
            "sum": pl.when(value.is_finite()).then(value * weight).otherwise(0.0),
            "low": pl.lit(0.0),
            "count": weight,
            "nan": value.is_nan() * weight,
            "up": (value == np.inf) * weight,
            "down": (value == -np.inf) * weight,
        }
        added = given.select(KEY_NUMBER, *(expr.alias(self._part(suffix)) for suffix, expr in signed.items()))
        both = pl.concat(
            [stored.select(KEY_NUMBER, *self.parts), added.cast(pl.Schema({KEY_NUMBER: pl.UInt32(), **self.parts}))]
        )
        high, low, *counts = self.parts
        numbers, sums, errors = group_sums(
            both[KEY_NUMBER].cast(pl.Int64).to_numpy(), both[high].to_numpy(), both[low].to_numpy()
        )
        totals = pl.DataFrame({KEY_NUMBER: numbers, high: sums, low: errors}).cast({KEY_NUMBER: pl.UInt32})
        return totals.join(both.group_by(KEY_NUMBER).agg(pl.col(name).sum() for name in counts), on=KEY_NUMBER)

    @property
    def result(self) -> pl.Expr:
        nan, up, down, count = (pl.col(self._part(suffix)) for suffix in ("nan", "up", "down", "count"))
        total = (
            pl.when((nan > 0) | ((up > 0) & (down > 0)))
            .then(np.nan)
            .when(up > 0)
            .then(np.inf)
            .when(down > 0)
            .then(-np.inf)
            .otherwise(pl.col(self._part("sum")))
        )
        return pl.when(count > 0).then(total / count if isinstance(self.aggregate.function, Average) else total)


RunningTotal = ExactTotal | DoubleTotal


def running_total(aggregate: Aggregate, schema: Schema) -> RunningTotal:
    """The running total of a count, a sum or an average."""
    function = aggregate.function
    of_doubles = isinstance(function, Sum | Average) and function.argument.operand(schema).dtype.is_float()
    return (DoubleTotal if of_doubles else ExactTotal)(aggregate, schema)


def argument_of(aggregate: Aggregate, schema: Schema) -> pl.Expr:
    """The value that an aggregate reads of a row; null where its filter does not hold."""
    value = aggregate.function.arguments[0].operand(schema).value
    if aggregate.condition is None:
        return value
    return pl.when(aggregate.condition.truth(schema)).then(value)


def group_sums(
    groups: Int64Array, high: Float64Array, low: Float64Array
) -> tuple[Int64Array, Float64Array, Float64Array]:
    """The sum of each group of finite numbers, as two doubles; the groups come in ascending order.

    >>> groups = np.zeros(4, dtype=np.int64)
    >>> [part.tolist() for part in group_sums(groups, np.array([0.1, 0.2, -0.1, -0.2]), np.zeros(4))]
    [[0], [0.0], [0.0]]
    """
    order = np.argsort(groups, kind="stable")
    groups, high, low = groups[order], high[order], low[order]
    # Each round adds neighbours of a group in pairs, until every group has one row.
    while True:
        starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]][: len(groups)])
        if len(starts) == len(groups):
            return groups, high, low
        sizes = np.diff(np.r_[starts, len(groups)])
        seconds = (np.arange(len(groups)) - np.repeat(starts, sizes)) % 2 == 1
        second = np.flatnonzero(seconds)
        high[second - 1], low[second - 1] = _add(high[second - 1], low[second - 1], high[second], low[second])
        groups, high, low = groups[~seconds], high[~seconds], low[~seconds]


def _add(
    high: Float64Array, low: Float64Array, other_high: Float64Array, other_low: Float64Array
) -> tuple[Float64Array, Float64Array]:
    # A sum beyond the greatest double is infinite, as in SQL; its rounding error is then unknown.
    with np.errstate(over="ignore", invalid="ignore"):
        plain, error = _two_sum(high, other_high)
        small, smaller = _two_sum(low, other_low)
        total, error = _quick_two_sum(plain, error + small)
        total, error = _quick_two_sum(total, error + smaller)
    finite = np.isfinite(plain)
    return np.where(finite, total, plain), np.where(finite, error, 0.0)


def _two_sum(one: Float64Array, other: Float64Array) -> tuple[Float64Array, Float64Array]:
    """A sum and its exact rounding error (Knuth)."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


def _quick_two_sum(total: Float64Array, error: Float64Array) -> tuple[Float64Array, Float64Array]:
    """The same sum with as much of it as fits in the first number (Dekker)."""
    whole = total + error
    return whole, error - (whole - total)
