"""first, last, min_by and max_by: the value of one row, chosen by its time or by another value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.aggregates.extremes import extreme
from headrace.expressions.rows import RowExpression


@dataclass(frozen=True, slots=True)
class Pick:
    """The value of the row with the least or greatest event time, or ``by``; null is a value like any other.

    Of rows with the same time (or ``by``), it is the least value for the least and the greatest for the greatest; null
    is less than any other value. So the answer does not depend on the order in which rows arrive.
    """

    function: str
    which: Literal["min", "max"]
    argument: RowExpression
    by: RowExpression | None = None

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,) if self.by is None else (self.argument, self.by)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        by = pl.Int64() if self.by is None else of.ordered(self.by, self.function).dtype
        return {"by": by, "value": of.ordered(self.argument, self.function).dtype}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        by = rows.time if self.by is None else of.ordered(self.by, self.function).value
        return self._picked(of, rows.kept(by), rows.kept(of.ordered(self.argument, self.function).value))

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return self._picked(of, of.state("by"), of.state("value"))

    def result(self, of: Binding) -> pl.Expr:
        return of.state("value")

    def result_type(self, of: Binding) -> pl.DataType:
        return self.state_types(of)["value"]

    def _picked(self, of: Binding, by: pl.Expr, value: pl.Expr) -> dict[str, pl.Expr]:
        types = self.state_types(of)
        chosen = extreme(self.which, by, types["by"])
        tied = value.filter(by == chosen)
        picked = extreme(self.which, tied, types["value"])
        if self.which == "min":
            picked = pl.when(tied.null_count() == 0).then(picked)
        return {"by": chosen, "value": picked}
