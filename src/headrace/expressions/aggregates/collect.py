"""Values of a group as a list, at most so many of them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.expressions.aggregates.arguments import parse_argument
from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.aggregates.bounds import check_bound
from headrace.expressions.aggregates.measure import Measure
from headrace.expressions.aggregates.ordering import Ordering
from headrace.expressions.rows import RowExpression


@dataclass(frozen=True, slots=True)
class CollectedList:
    """The first values by event time, those of one time in rising order; nulls are left out."""

    argument: RowExpression
    at_most: int

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        value = of.ordered(self.argument, "collect_list").dtype
        return {"values": pl.List(pl.Struct({"time": pl.Int64(), "value": value}))}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        value = of.canonical(self.argument, "collect_list").value
        timed = rows.kept(pl.struct(rows.time.alias("time"), value.alias("value")))
        return {"values": self._first(of, timed.filter(rows.kept(value.is_not_null())))}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return {"values": self._first(of, of.elements("values"))}

    def result(self, of: Binding) -> pl.Expr:
        return of.state("values").list.eval(pl.element().struct.field("value"))

    def result_type(self, of: Binding) -> pl.DataType:
        return pl.List(of.ordered(self.argument, "collect_list").dtype)

    def _first(self, of: Binding, timed: pl.Expr) -> pl.Expr:
        ordering = Ordering(("time", "value"), (False, False), self.at_most)
        return timed.implode().map_batches(ordering.first, self.state_types(of)["values"], is_elementwise=True)


@dataclass(frozen=True, slots=True)
class CollectedSet:
    """The least of the different values, in rising order; nulls are left out."""

    argument: RowExpression
    at_most: int

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        return {"values": self.result_type(of)}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        return {"values": self._least(rows.kept(of.canonical(self.argument, "collect_set").value).drop_nulls())}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return {"values": self._least(of.elements("values"))}

    def result(self, of: Binding) -> pl.Expr:
        return of.state("values")

    def result_type(self, of: Binding) -> pl.DataType:
        return pl.List(of.ordered(self.argument, "collect_set").dtype)

    def _least(self, value: pl.Expr) -> pl.Expr:
        return value.unique().sort().head(self.at_most).implode()


def collect_list(value: str, *, at_most: int | None = None) -> Measure:
    """The values in the order of event time (at one time: in rising order); the first ``at_most`` are kept.

    >>> collect_list("page", at_most=100)
    hr.collect_list('page', at_most=100)
    """
    bound = check_bound(at_most, argument="at_most", text=f"hr.collect_list({value!r})")
    return Measure(f"hr.collect_list({value!r}, at_most={bound})", CollectedList(parse_argument(value), bound))


def collect_set(value: str, *, at_most: int | None = None) -> Measure:
    """The different values in rising order; the least ``at_most`` are kept, so that no order of rows matters.

    >>> collect_set("shop", at_most=20)
    hr.collect_set('shop', at_most=20)
    """
    bound = check_bound(at_most, argument="at_most", text=f"hr.collect_set({value!r})")
    return Measure(f"hr.collect_set({value!r}, at_most={bound})", CollectedSet(parse_argument(value), bound))
