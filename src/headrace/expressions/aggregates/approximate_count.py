"""approx_count_distinct: how many different values there are, by HyperLogLog."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.aggregates.hyperloglog import HyperLogLog
from headrace.expressions.rows import RowExpression

DEFAULT_ERROR = 0.02
_LEAST_ERROR, _LARGEST_ERROR = 0.005, 0.25


@dataclass(frozen=True, slots=True)
class ApproximateCount:
    """The estimated number of different values, with a standard error of at most ``error``."""

    argument: RowExpression
    error: float = DEFAULT_ERROR

    def __post_init__(self) -> None:
        if not _LEAST_ERROR <= self.error <= _LARGEST_ERROR:
            raise DefinitionError(
                "SKETCH_ERROR_RANGE",
                f"approx_count_distinct({self.argument.text}, {self.error:g}): the relative error must lie between "
                f"{_LEAST_ERROR} and {_LARGEST_ERROR}. For an exact count use count(DISTINCT {self.argument.text}).",
            )

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,)

    @property
    def sketches(self) -> HyperLogLog:
        """The sketches of this error."""
        return HyperLogLog.within(self.error)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        of.ordered(self.argument, "approx_count_distinct")
        return {"sketch": pl.Binary()}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        value = of.canonical(self.argument, "approx_count_distinct").value
        entries = value.map_batches(self.sketches.entries, pl.Int32(), is_elementwise=True)
        kept = rows.kept(pl.when(value.is_not_null()).then(entries)).drop_nulls()
        return {"sketch": kept.implode().map_batches(self.sketches.sketch, pl.Binary(), is_elementwise=True)}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        together = of.state("sketch").implode()
        return {"sketch": together.map_batches(self.sketches.merge, pl.Binary(), is_elementwise=True)}

    def result(self, of: Binding) -> pl.Expr:
        return of.state("sketch").map_batches(self.sketches.count, pl.Int64(), is_elementwise=True)

    def result_type(self, of: Binding) -> pl.DataType:
        of.ordered(self.argument, "approx_count_distinct")
        return pl.Int64()
