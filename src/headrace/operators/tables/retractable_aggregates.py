"""Aggregates that can retract rows: what a group's state is, how rows change it, and the result.

Counts, sums and averages keep running totals. Minimum, maximum and distinct counts keep every value with its count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions import Aggregate
from headrace.expressions.aggregates.aggregate import canonical
from headrace.expressions.aggregates.counts import Count, CountDistinct
from headrace.expressions.aggregates.extremes import Extreme, extreme
from headrace.expressions.aggregates.sums import Average, Sum
from headrace.expressions.operands import is_float
from headrace.operators.rows import KEY_NUMBER
from headrace.operators.tables.double_double import group_sums

Schema = Mapping[str, pl.DataType]
WEIGHT = "__weight"
"""1 for a row that is added, -1 for one that is retracted."""
TIMES = "__times"
"""How often a value is in its group."""
CHANGED = "__changed"
RETRACTABLE = "count(*), count(x), count(DISTINCT x), sum, avg, min and max"
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
        values = (replace(self.aggregate, name=name, function=Count(each)) for each in function.arguments)
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
        """The aggregate's value, from the state columns."""
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
    of_doubles = isinstance(function, Sum | Average) and is_float(function.argument.type(schema))
    return (DoubleTotal if of_doubles else ExactTotal)(aggregate, schema)


def argument_of(aggregate: Aggregate, schema: Schema) -> pl.Expr:
    """The value that an aggregate reads of a row; null where its filter does not hold."""
    value = aggregate.function.arguments[0].to_polars(schema)
    if aggregate.condition is None:
        return value
    return pl.when(aggregate.condition.truth(schema)).then(value)


@dataclass(frozen=True)
class ValueCounts:
    """The distinct values of a group and how often each occurs, so that the least or greatest can be retracted."""

    number: int
    """Which of the step's value counts this is."""
    aggregates: tuple[Aggregate, ...]
    """The aggregates that read these values."""
    schema: Schema

    @property
    def column(self) -> str:
        return f"__value.{self.number}"

    @cached_property
    def dtype(self) -> pl.DataType:
        return self.aggregates[0].function.arguments[0].type(self.schema)

    def total(self, stored: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """The value counts of each group with weighted rows added, and which of them the rows changed."""
        value = canonical(argument_of(self.aggregates[0], self.schema), self.dtype).alias(self.column)
        given = rows.select(KEY_NUMBER, value, pl.col(WEIGHT).cast(pl.Int64).alias(TIMES)).drop_nulls(self.column)
        before = stored.select(KEY_NUMBER, self.column, TIMES, pl.lit(False).alias(CHANGED))
        both = pl.concat([before, given.with_columns(pl.lit(True).alias(CHANGED))])
        return both.group_by(KEY_NUMBER, self.column).agg(pl.col(TIMES).sum(), pl.col(CHANGED).any())

    def results(self, totals: pl.DataFrame) -> pl.DataFrame:
        """The results of each group that has a value."""
        value, occurrences = pl.col(self.column), pl.len().cast(pl.Int64)
        results = {
            _counted(each): extreme(each.function.which, value, self.dtype)
            if isinstance(each.function, Extreme)
            else occurrences
            for each in self.aggregates
        }
        return totals.filter(pl.col(TIMES) > 0).group_by(KEY_NUMBER).agg(**results)

    def result(self, aggregate: Aggregate) -> pl.Expr:
        """The result of any group, with values or without."""
        result = pl.col(_counted(aggregate))
        return result.fill_null(0) if isinstance(aggregate.function, CountDistinct) else result


def _counted(aggregate: Aggregate) -> str:
    return f"__counted.{aggregate.name}"


def value_counts(aggregates: Sequence[Aggregate], schema: Schema) -> tuple[ValueCounts, ...]:
    """The value counts that aggregates need; aggregates that read the same values share them."""
    shared: dict[tuple[str, str | None], list[Aggregate]] = {}
    for each in filter(needs_value_counts, aggregates):
        condition = None if each.condition is None else each.condition.text
        shared.setdefault((each.function.arguments[0].text, condition), []).append(each)
    return tuple(ValueCounts(number, tuple(group), schema) for number, group in enumerate(shared.values()))


def needs_value_counts(aggregate: Aggregate) -> bool:
    """Whether an aggregate needs every value of a group."""
    return isinstance(aggregate.function, Extreme | CountDistinct)


def check_retractable(step: str, aggregate: Aggregate) -> None:
    """Refuse an aggregate that cannot take rows back."""
    if not isinstance(aggregate.function, Count | CountDistinct | Sum | Average | Extreme):
        raise DefinitionError(
            "AGGREGATE_CANNOT_RETRACT",
            f"step {step!r}: {aggregate.name} = {aggregate.text} cannot retract a row that is updated or deleted. "
            f"Use {RETRACTABLE}.",
        )
