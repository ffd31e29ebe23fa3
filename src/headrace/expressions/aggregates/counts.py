"""count, count(DISTINCT ...) and approx_count_distinct."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.aggregate import (
    AggregateFunction,
    AggregateScope,
    FilteredRows,
    UnaryFunction,
    map_groups,
)
from headrace.expressions.aggregates.hyperloglog import HyperLogLog
from headrace.expressions.rows import RowExpression

_LEAST_ERROR, _LARGEST_ERROR = 0.005, 0.25


@dataclass(frozen=True, slots=True)
class Count(AggregateFunction):
    """The number of rows, or of the rows where the argument is not null."""

    argument: RowExpression | None

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return () if self.argument is None else (self.argument,)

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        if self.argument is not None:
            scope.operand(self.argument)
        return {"count": pl.Int64()}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        if self.argument is None:
            return {"count": rows.count}
        return {"count": rows.select(scope.operand(self.argument).value).count().cast(pl.Int64)}

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        return {"count": scope.state("count").sum()}


@dataclass(frozen=True, slots=True)
class CountDistinct(UnaryFunction):
    """The exact number of distinct values; the state holds all of them."""

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        return {"values": pl.List(scope.ordered(self.argument, "count(DISTINCT ...)").dtype)}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        value = scope.ordered(self.argument, "count(DISTINCT ...)").value
        return {"values": rows.select(value).drop_nulls().unique().implode()}

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        return {"values": scope.elements("values").unique().implode()}

    def result(self, scope: AggregateScope) -> pl.Expr:
        return scope.state("values").list.len().cast(pl.Int64)

    def result_type(self, scope: AggregateScope) -> pl.DataType:
        scope.ordered(self.argument, "count(DISTINCT ...)")
        return pl.Int64()


@dataclass(frozen=True, slots=True)
class ApproximateCountDistinct(UnaryFunction):
    """The estimated number of distinct values, with a standard error of at most ``error``."""

    error: float = 0.02

    def __post_init__(self) -> None:
        if not _LEAST_ERROR <= self.error <= _LARGEST_ERROR:
            raise DefinitionError(
                "SKETCH_ERROR_RANGE",
                f"approx_count_distinct({self.argument.text}, {self.error:g}): the relative error must lie between "
                f"{_LEAST_ERROR} and {_LARGEST_ERROR}. For an exact count use count(DISTINCT {self.argument.text}).",
            )

    @property
    def _sketches(self) -> HyperLogLog:
        return HyperLogLog.within(self.error)

    def state_types(self, scope: AggregateScope) -> dict[str, pl.DataType]:
        scope.ordered(self.argument, "approx_count_distinct")
        return {"sketch": pl.Binary()}

    def partial(self, scope: AggregateScope, rows: FilteredRows) -> dict[str, pl.Expr]:
        value = scope.canonical(self.argument, "approx_count_distinct").value
        entries = value.map_batches(self._sketches.entries, pl.Int32(), is_elementwise=True)
        selected = rows.select(pl.when(value.is_not_null()).then(entries)).drop_nulls()
        return {"sketch": map_groups(selected, self._sketches.sketch, pl.Binary())}

    def merge(self, scope: AggregateScope) -> dict[str, pl.Expr]:
        return {"sketch": map_groups(scope.state("sketch"), self._sketches.merge, pl.Binary())}

    def result(self, scope: AggregateScope) -> pl.Expr:
        return scope.state("sketch").map_batches(self._sketches.count, pl.Int64(), is_elementwise=True)

    def result_type(self, scope: AggregateScope) -> pl.DataType:
        scope.ordered(self.argument, "approx_count_distinct")
        return pl.Int64()
