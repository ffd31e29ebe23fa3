"""The exponentially weighted mean by event time."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.expressions.aggregates.arguments import parse_argument
from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.aggregates.measure import Measure
from headrace.expressions.rows import RowExpression


@dataclass(frozen=True, slots=True)
class WeightedMean:
    """A mean in which a value counts half as much for every half-life that it is older than the newest one."""

    argument: RowExpression
    half_life: int

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        of.number(self.argument, "ewm")
        return {"time": pl.Int64(), "sum": pl.Float64(), "weight": pl.Float64()}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        value = of.number(self.argument, "ewm").value.cast(pl.Float64)
        kept = rows.kept(value)
        time = rows.times.filter(kept.is_not_null())
        weight = self._weight(time, time.max())
        return {"time": time.max(), "sum": (kept.drop_nulls() * weight).sum(), "weight": weight.sum()}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        time = of.state("time")
        weight = self._weight(time, time.max())
        sums = {name: (of.state(name) * weight).sum() for name in ("sum", "weight")}
        return {"time": time.max(), **sums}

    def result(self, of: Binding) -> pl.Expr:
        return pl.when(of.state("weight") > 0).then(of.state("sum") / of.state("weight"))

    def result_type(self, of: Binding) -> pl.DataType:
        of.number(self.argument, "ewm")
        return pl.Float64()

    def _weight(self, time: pl.Expr, newest: pl.Expr) -> pl.Expr:
        return ((time - newest) * (log(2) / self.half_life)).exp()


def ewm(value: str, *, half_life: Duration) -> Measure:
    """The mean of a number in which newer values, by event time, count more: half as much for every ``half_life``.

    >>> ewm("price", half_life="10 minutes")
    hr.ewm('price', half_life='10 minutes')
    """
    length = positive_microseconds(half_life, argument="half_life")
    text = f"hr.ewm({value!r}, half_life={spoken(length)!r})"
    return Measure(text, WeightedMean(parse_argument(value), length))
