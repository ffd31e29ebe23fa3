"""count: rows, values, and different values."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.rows import RowExpression


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows there are, or how many of them have a value."""

    argument: RowExpression | None

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return () if self.argument is None else (self.argument,)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        if self.argument is not None:
            of.operand(self.argument)
        return {"count": pl.Int64()}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        if self.argument is None:
            return {"count": rows.count}
        return {"count": rows.kept(of.operand(self.argument).value).count().cast(pl.Int64)}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return {"count": of.state("count").sum()}

    def result(self, of: Binding) -> pl.Expr:
        return of.state("count")

    def result_type(self, of: Binding) -> pl.DataType:
        return self.state_types(of)["count"]


@dataclass(frozen=True, slots=True)
class CountDistinct:
    """How many different values there are, exactly; the state holds all of them."""

    argument: RowExpression

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        return {"values": pl.List(of.ordered(self.argument, "count(DISTINCT ...)").dtype)}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        value = of.ordered(self.argument, "count(DISTINCT ...)").value
        return {"values": rows.kept(value).drop_nulls().unique().implode()}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return {"values": of.elements("values").unique().implode()}

    def result(self, of: Binding) -> pl.Expr:
        return of.state("values").list.len().cast(pl.Int64)

    def result_type(self, of: Binding) -> pl.DataType:
        of.ordered(self.argument, "count(DISTINCT ...)")
        return pl.Int64()
