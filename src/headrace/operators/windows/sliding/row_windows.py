"""The windows that end with single rows: for each row wanted, the aggregate of its key over the time up to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.operators.rows import ARRIVAL, KEY_NUMBER, in_key_order, with_key_numbers
from headrace.operators.windows.aggregation import Aggregation

TIME, NEW, CHANGED = "__time", "__new", "__changed"
"""What rows carry: their time, the number of their arrival, whether they came with this batch or changed in it."""
PLACE, REACHED = "__place", "__reached"
"""What totals carry: the place of their row in its frame, and whether a new row is in the window."""
_WANTED = "__wanted"
_REACHED = {REACHED: pl.col(REACHED).any()}


@dataclass(frozen=True)
class SlidingTotals:
    """Aggregates ``(t - size, t]`` for single rows; rows with equal times see each other."""

    aggregation: Aggregation
    keys: Mapping[str, pl.DataType]
    """The columns by which rows belong together."""
    size: int

    def totals(self, rows: pl.DataFrame, wanted: pl.Expr) -> pl.DataFrame:
        """Place, time, key and partial aggregates for each row that is wanted, those of a key in the order of time."""
        columns = dict.fromkeys((*self.keys, *self._read, TIME, ARRIVAL, NEW))
        narrow = rows.select(*columns, wanted.alias(_WANTED)).with_row_index(PLACE)
        chosen = narrow.filter(_WANTED)
        if chosen.is_empty():
            return pl.DataFrame(schema=self._schema)
        time = pl.col(TIME)
        earliest, latest = chosen.select(time.min().alias("from"), time.max().alias("to")).row(0)
        near = with_key_numbers(narrow, tuple(self.keys), of=chosen)
        # Rows that are in every wanted window are added up once for each key; only the others are rolled over.
        in_all = (time > latest - self.size) & (time < earliest)
        in_some = (time > earliest - self.size) & (time <= latest)
        common = near.filter(in_all).group_by(KEY_NUMBER).agg(**self._partial)
        edges = in_key_order(near.filter(in_some & ~in_all), TIME, ARRIVAL)
        windows = edges.rolling(TIME, period=f"{self.size}i", closed="right", group_by=KEY_NUMBER).agg(**self._partial)
        told = edges.select(PLACE, TIME, *self.keys, KEY_NUMBER, _WANTED)
        totals = pl.concat([told, windows.drop(KEY_NUMBER, TIME)], how="horizontal").filter(_WANTED)
        return self.with_more(totals, common, on=(KEY_NUMBER,)).select(self._schema.keys())

    def with_more(self, totals: pl.DataFrame, more: pl.DataFrame, *, on: Sequence[str]) -> pl.DataFrame:
        """Totals merged with further partial aggregates, which are found by some columns."""
        if more.is_empty():
            return totals
        columns = (PLACE, *self.aggregation.states, REACHED)
        found = totals.select(PLACE, *on).join(more, on=on, nulls_equal=True).select(columns)
        parts = pl.concat([totals.select(columns), found]).group_by(PLACE, maintain_order=True)
        return totals.with_columns(parts.agg(**self.aggregation.merged, **_REACHED).drop(PLACE).iter_columns())

    @cached_property
    def _partial(self) -> dict[str, pl.Expr]:
        return {**self.aggregation.partial, REACHED: pl.col(NEW).any()}

    @cached_property
    def _read(self) -> set[str]:
        """The columns that the aggregates read."""
        return {name for each in self.aggregation.partial.values() for name in each.meta.root_names()}

    @cached_property
    def _schema(self) -> dict[str, pl.DataType]:
        place = {PLACE: pl.UInt32(), TIME: pl.Int64()}
        return {**place, **self.keys, **self.aggregation.states, REACHED: pl.Boolean()}
