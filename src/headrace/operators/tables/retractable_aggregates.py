"""Aggregates that can take a row back: what is kept of a group, what rows add to it, and the value it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

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
from headrace.operators.tables.double_double import summed

Schema = Mapping[str, pl.DataType]
WEIGHT = "__weight"
"""1 for a row that comes, -1 for one that goes."""
_WHOLE = pl.Decimal(38, 0)
RETRACTABLE = "count(*), count(x), count(DISTINCT x), sum, avg, min and max"


class RunningTotal(Protocol):
    """What is kept of a group for one aggregate, as numbers that are added and taken away."""

    @property
    def parts(self) -> Mapping[str, pl.DataType]:
        """The columns that are kept."""

    def total(self, kept: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """What was kept of numbered groups, and weighted rows of them, made one row for each group."""


@dataclass(frozen=True)
class ExactTotal:
    """Counts, and sums of integers and decimals."""

    aggregate: Aggregate
    schema: Schema

    @cached_property
    def parts(self) -> dict[str, pl.DataType]:
        """Whole numbers; those of decimals are counted in their last digit."""
        types = self.aggregate.state_types(self.schema)
        return {name: _WHOLE if isinstance(dtype, pl.Decimal) else dtype for name, dtype in types.items()}

    def total(self, kept: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """Plain sums: what comes is added, what goes is taken away."""
        partial = self.aggregate.partial(self.schema, pl.lit(0))
        signed = [kept.select(KEY_NUMBER, *(_number(name) for name in self.parts))]
        for weight in (1, -1):
            given = rows.filter(pl.col(WEIGHT) == weight).group_by(KEY_NUMBER).agg(**partial)
            signed.append(given.select(KEY_NUMBER, *(_number(name) * weight for name in self.parts)))
        totals = pl.concat(signed).group_by(KEY_NUMBER).agg(pl.col(name).sum() for name in self.parts)
        return totals.with_columns(pl.col(name).cast(dtype) for name, dtype in self.parts.items())


@dataclass(frozen=True)
class DoubleTotal:
    """The sum of doubles in two of them; what is no number or infinite is counted, so that it can go again."""

    aggregate: Aggregate
    schema: Schema

    @cached_property
    def parts(self) -> dict[str, pl.DataType]:
        """The sum, how many values there are, and how many of them have no finite sum."""
        counts = {self._part(suffix): pl.Int64() for suffix in ("count", "nan", "up", "down")}
        return {self._part("sum"): pl.Float64(), self._part("low"): pl.Float64(), **counts}

    def _part(self, suffix: str) -> str:
        return f"{self.aggregate.name}.{suffix}"

    def total(self, kept: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """Sums of what is finite, and counts."""
        value = value_of(self.aggregate, self.schema).cast(pl.Float64)
        given = rows.select(KEY_NUMBER, WEIGHT, value.alias("value")).drop_nulls("value")
        finite, weight = pl.col("value").is_finite(), pl.col(WEIGHT)
        signed = given.select(
            KEY_NUMBER,
            pl.when(finite).then(pl.col("value") * weight).otherwise(0.0).alias(self._part("sum")),
            pl.lit(0.0).alias(self._part("low")),
            weight.alias(self._part("count")),
            (pl.col("value").is_nan() * weight).alias(self._part("nan")),
            ((pl.col("value") == np.inf) * weight).alias(self._part("up")),
            ((pl.col("value") == -np.inf) * weight).alias(self._part("down")),
        )
        both = pl.concat(
            [
                kept.select(KEY_NUMBER, *self.parts),
                signed.select(KEY_NUMBER, *(pl.col(name).cast(dtype) for name, dtype in self.parts.items())),
            ]
        )
        high, low, *counts = self.parts
        numbers, sums, rests = summed(
            both[KEY_NUMBER].cast(pl.Int64).to_numpy(), both[high].to_numpy(), both[low].to_numpy()
        )
        totals = pl.DataFrame({KEY_NUMBER: numbers, high: sums, low: rests}).cast({KEY_NUMBER: pl.UInt32})
        return totals.join(both.group_by(KEY_NUMBER).agg(pl.col(name).sum() for name in counts), on=KEY_NUMBER)

    @property
    def value(self) -> pl.Expr:
        """The sum, over what is kept."""
        nan, up, down = (pl.col(self._part(suffix)) > 0 for suffix in ("nan", "up", "down"))
        return (
            pl.when(nan | (up & down))
            .then(np.nan)
            .when(up)
            .then(np.inf)
            .when(down)
            .then(-np.inf)
            .otherwise(pl.col(self._part("sum")))
        )


def result_of(aggregate: Aggregate, schema: Schema) -> pl.Expr:
    """The value of a sum, an average or a count, over what is kept of a group."""
    function = aggregate.function
    if is_of_doubles(aggregate, schema):
        total = DoubleTotal(aggregate, schema).value
        count = pl.col(f"{aggregate.name}.count")
        mean = total / count if isinstance(function, Average) else total
        return pl.when(count > 0).then(mean).alias(aggregate.name)
    result = aggregate.result(schema)
    if isinstance(function, Count):
        return result
    count = pl.col(f"{aggregate.name}.count" if isinstance(function, Average) else f"{aggregate.name}.values.count")
    return pl.when(count > 0).then(result).alias(aggregate.name)


def kept_for(aggregate: Aggregate, schema: Schema) -> list[RunningTotal]:
    """What is kept of a group for an aggregate that is no more than numbers."""
    if is_of_doubles(aggregate, schema):
        return [DoubleTotal(aggregate, schema)]
    if not isinstance(aggregate.function, Sum):
        return [ExactTotal(aggregate, schema)]
    # A sum of nothing is null, and only how many values there are tells it from a sum that is zero.
    values = Aggregate(
        f"{aggregate.name}.values", aggregate.text, Count(aggregate.function.argument), aggregate.condition
    )
    return [ExactTotal(aggregate, schema), ExactTotal(values, schema)]


def is_counted(aggregate: Aggregate) -> bool:
    """Whether an aggregate needs every value of a group, with how often it is there."""
    return isinstance(aggregate.function, Extreme | CountDistinct)


def is_of_doubles(aggregate: Aggregate, schema: Schema) -> bool:
    """Whether an aggregate sums doubles."""
    function = aggregate.function
    return isinstance(function, Sum | Average) and is_float(function.argument.type(schema))


def value_of(aggregate: Aggregate, schema: Schema) -> pl.Expr:
    """What an aggregate reads of a row; null where its condition is not met."""
    value = aggregate.function.arguments[0].to_polars(schema)
    if aggregate.condition is None:
        return value
    return pl.when(aggregate.condition.truth(schema)).then(value)


def check_retractable(step: str, aggregate: Aggregate) -> None:
    """An aggregate of a table can take rows back."""
    if not isinstance(aggregate.function, Count | CountDistinct | Sum | Average | Extreme):
        raise DefinitionError(
            "AGGREGATE_CANNOT_RETRACT",
            f"step {step!r}: {aggregate.name} = {aggregate.text} cannot take a row back that is changed or deleted. "
            f"Use {RETRACTABLE}.",
        )


def _number(name: str) -> pl.Expr:
    return pl.col(name).to_physical().cast(pl.Int128).fill_null(0)


TIMES = "__times"
"""How often a value is there."""
CHANGED = "__changed"


@dataclass(frozen=True)
class ValueCounts:
    """The values that one or more aggregates read of a group's rows."""

    number: int
    """Which of the step's counted values these are."""
    aggregates: tuple[Aggregate, ...]
    schema: Mapping[str, pl.DataType]

    @property
    def column(self) -> str:
        """Where the state has the values."""
        return f"__value.{self.number}"

    @cached_property
    def dtype(self) -> pl.DataType:
        """The type of the values."""
        return self.aggregates[0].function.arguments[0].type(self.schema)

    def total(self, kept: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """The values of numbered groups after weighted rows, and which of them the rows changed; zero times is gone."""
        value = canonical(value_of(self.aggregates[0], self.schema), self.dtype).alias(self.column)
        given = rows.select(KEY_NUMBER, value, pl.col(WEIGHT).cast(pl.Int64).alias(TIMES)).drop_nulls(self.column)
        before = kept.select(KEY_NUMBER, self.column, TIMES, pl.lit(False).alias(CHANGED))
        both = pl.concat([before, given.with_columns(pl.lit(True).alias(CHANGED))])
        return both.group_by(KEY_NUMBER, self.column).agg(pl.col(TIMES).sum(), pl.col(CHANGED).any())

    def results(self, totals: pl.DataFrame) -> pl.DataFrame:
        """What the aggregates say of each group that has a value."""
        there = totals.filter(pl.col(TIMES) > 0)
        return there.group_by(KEY_NUMBER).agg(self._said(each).alias(_said_in(each)) for each in self.aggregates)

    def result(self, aggregate: Aggregate) -> pl.Expr:
        """What an aggregate says of a group, with a value or without."""
        said = pl.col(_said_in(aggregate))
        return said.fill_null(0) if isinstance(aggregate.function, CountDistinct) else said

    def _said(self, aggregate: Aggregate) -> pl.Expr:
        if isinstance(aggregate.function, Extreme):
            return extreme(aggregate.function.which, pl.col(self.column), self.dtype)
        return pl.len().cast(pl.Int64)


def value_counts(aggregates: Sequence[Aggregate], schema: Mapping[str, pl.DataType]) -> tuple[ValueCounts, ...]:
    """The values that aggregates need; those that read the same share them."""
    shared: dict[tuple[str, str | None], list[Aggregate]] = {}
    for each in aggregates:
        condition = None if each.condition is None else each.condition.text
        shared.setdefault((each.function.arguments[0].text, condition), []).append(each)
    return tuple(ValueCounts(number, tuple(group), schema) for number, group in enumerate(shared.values()))


def _said_in(aggregate: Aggregate) -> str:
    return f"__said.{aggregate.name}"
