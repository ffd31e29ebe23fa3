"""The different values of a group and how often each is there, so that the least or greatest of them can go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.expressions import Aggregate
from headrace.expressions.aggregates.binding import canonical
from headrace.expressions.aggregates.counts import CountDistinct
from headrace.expressions.aggregates.extremes import Extreme, extreme
from headrace.operators.key_order import KEY_NUMBER
from headrace.operators.tables.retraction import WEIGHT, value_of

TIMES = "__times"
"""How often a value is there."""
CHANGED = "__changed"


@dataclass(frozen=True)
class Counted:
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
        return self.aggregates[0].calculation.arguments[0].type(self.schema)

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
        return said.fill_null(0) if isinstance(aggregate.calculation, CountDistinct) else said

    def _said(self, aggregate: Aggregate) -> pl.Expr:
        if isinstance(aggregate.calculation, Extreme):
            return extreme(aggregate.calculation.function, pl.col(self.column), self.dtype)
        return pl.len().cast(pl.Int64)


def counted_values(aggregates: Sequence[Aggregate], schema: Mapping[str, pl.DataType]) -> tuple[Counted, ...]:
    """The values that aggregates need; those that read the same share them."""
    shared: dict[tuple[str, str | None], list[Aggregate]] = {}
    for each in aggregates:
        condition = None if each.condition is None else each.condition.text
        shared.setdefault((each.calculation.arguments[0].text, condition), []).append(each)
    return tuple(Counted(number, tuple(group), schema) for number, group in enumerate(shared.values()))


def _said_in(aggregate: Aggregate) -> str:
    return f"__said.{aggregate.name}"
