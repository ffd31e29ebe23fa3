"""count, count(DISTINCT ...) and approx_count_distinct."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.aggregate import (
    AggregateFunction,
    AggregateScope,
    BoundAggregate,
    map_groups,
)
from headrace.expressions.aggregates.hyperloglog import HyperLogLog

_LEAST_ERROR, _LARGEST_ERROR = 0.005, 0.25


@dataclass(frozen=True, slots=True)
class Count(AggregateFunction):
    """The number of rows or, with an argument, of the rows where it is not null."""

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        if self.arguments:
            number = scope.select(self.argument.operand(scope.schema).value).count()
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
class ApproximateCountDistinct(AggregateFunction):
    """The estimated number of distinct values, with a standard error of at most ``error``."""

    error: float = 0.02

    def __post_init__(self) -> None:
        if not _LEAST_ERROR <= self.error <= _LARGEST_ERROR:
            raise DefinitionError(
                "SKETCH_ERROR_RANGE",
                f"approx_count_distinct({self.argument.text}, {self.error:g}): the error must lie between "
                f"{_LEAST_ERROR} and {_LARGEST_ERROR}. For an exact count use count(DISTINCT {self.argument.text}).",
            )

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        value = scope.canonical(self.argument, "approx_count_distinct").value
        sketches, sketch = HyperLogLog.within(self.error), scope.state("sketch")
        entries = value.map_batches(sketches.entries, pl.Int32(), is_elementwise=True)
        selected = scope.select(pl.when(value.is_not_null()).then(entries)).drop_nulls()
        partial = {"sketch": map_groups(selected, sketches.sketch, pl.Binary())}
        merge = {"sketch": map_groups(sketch, sketches.merge, pl.Binary())}
        number = sketch.map_batches(sketches.count, pl.Int64(), is_elementwise=True)
        return BoundAggregate({"sketch": pl.Binary()}, partial, merge, number, pl.Int64())
