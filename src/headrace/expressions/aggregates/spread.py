"""stddev and variance: count, mean and squared distances from the mean, merged without losing digits."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.rows import RowExpression


@dataclass(frozen=True, slots=True)
class Spread:
    """The variance of a number, or its root; of a sample (one value: null) or of all values (one value: 0.0).

    Means are taken of the distances from one of the values: their own size would cost digits, and could overflow. Where
    the sum of squared distances is beyond a double, or there is an infinity or NaN, the answer is NaN, as in Spark.
    """

    function: str
    argument: RowExpression
    sample: bool
    root: bool

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return (self.argument,)

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        of.number(self.argument, self.function)
        return {"count": pl.Int64(), "mean": pl.Float64(), "distances": pl.Float64()}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        value = rows.kept(of.number(self.argument, self.function).value.cast(pl.Float64))
        near = value.drop_nulls().first()
        mean = near + (value - near).mean()
        return {"count": value.count().cast(pl.Int64), "mean": mean, "distances": ((value - mean) ** 2).sum()}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        count, mean = of.state("count"), of.state("mean")
        near = mean.drop_nulls().first()
        common = near + ((mean - near) * count).sum() / count.sum()
        between = ((mean - common) ** 2 * count).sum()
        return {"count": count.sum(), "mean": common, "distances": of.state("distances").sum() + between}

    def result(self, of: Binding) -> pl.Expr:
        degrees, distances = of.state("count") - int(self.sample), of.state("distances")
        known = pl.when(distances.is_finite()).then(distances / degrees).otherwise(float("nan"))
        variance = pl.when(degrees > 0).then(known)
        return variance.sqrt() if self.root else variance

    def result_type(self, of: Binding) -> pl.DataType:
        of.number(self.argument, self.function)
        return pl.Float64()
