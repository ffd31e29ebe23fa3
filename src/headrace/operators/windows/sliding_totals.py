"""The totals of sliding windows, and how the rows of a hot key are spread over several slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.operators.rows import ARRIVAL, KEY_NUMBER, TIME, in_key_order, in_order_of_arrival, with_key_numbers
from headrace.operators.windows.aggregation import Aggregation

NEW, CHANGED = "__new", "__changed"
"""Columns of rows: whether they are new in this batch, and whether they changed in it."""
PLACE, REACHED = "__place", "__reached"
"""Columns of totals: the position of their row in its frame, and whether the window has a new row."""
_WANTED = "__wanted"
_REACHED = {REACHED: pl.col(REACHED).any()}


@dataclass(frozen=True)
class SlidingTotals:
    """Aggregates ``(t - size, t]`` for single rows; a window includes all rows of equal times."""

    aggregation: Aggregation
    keys: Mapping[str, pl.DataType]
    size: int

    def totals(self, rows: pl.DataFrame, wanted: pl.Expr) -> pl.DataFrame:
        """Position, time, key and partial aggregates of the wanted rows, by key and time."""
        columns = dict.fromkeys((*self.keys, *self.aggregation.read, TIME, ARRIVAL, NEW))
        narrow = rows.select(*columns, wanted.alias(_WANTED)).with_row_index(PLACE)
        chosen = narrow.filter(_WANTED)
        if chosen.is_empty():
            return pl.DataFrame(schema=self._schema)
        time = pl.col(TIME)
        earliest, latest = chosen.select(time.min().alias("from"), time.max().alias("to")).row(0)
        near = with_key_numbers(narrow, tuple(self.keys), of=chosen)
        # Rows that are in every wanted window are aggregated once for each key; only the others are rolled over.
        in_all = (time > latest - self.size) & (time < earliest)
        in_some = (time > earliest - self.size) & (time <= latest)
        common = in_order_of_arrival(near.filter(in_all)).group_by(KEY_NUMBER).agg(**self._partial)
        edges = in_key_order(near.filter(in_some & ~in_all), TIME, ARRIVAL)
        windows = edges.rolling(TIME, period=f"{self.size}i", closed="right", group_by=KEY_NUMBER).agg(**self._partial)
        rows = edges.select(PLACE, TIME, *self.keys, KEY_NUMBER, _WANTED)
        totals = pl.concat([rows, windows.drop(KEY_NUMBER, TIME)], how="horizontal").filter(_WANTED)
        return self.with_more(totals, common, on=(KEY_NUMBER,)).select(self._schema.keys())

    def with_more(self, totals: pl.DataFrame, more: pl.DataFrame, *, on: Sequence[str]) -> pl.DataFrame:
        """Totals merged with further partial aggregates, joined on some columns."""
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
    def _schema(self) -> dict[str, pl.DataType]:
        place = {PLACE: pl.UInt32(), TIME: pl.Int64()}
        return {**place, **self.keys, **self.aggregation.states, REACHED: pl.Boolean()}


SHARE, PANE, SUMS = "__share", "__pane", "__sums"
EARLIEST = "__earliest"
_PANE_LENGTH = 250_000
_MOST_PANES = 1024


@dataclass(frozen=True)
class KeySpread:
    """Spreads the rows of a hot key over several shares, each with a hash, and mostly a slot, of its own.

    Time is cut into short panes, and pane ``p`` belongs to share ``p mod count``. A window has a whole number of panes
    that ``count`` divides, so the panes in which a row's window begins and ends belong to the same share. In between, a
    share needs only the partial aggregates of other shares' panes, which are computed before the shuffle. So every row
    is moved and kept once, and the shares work at the same time even if all rows are from the same minute.

    A row that stands for a pane has ``SUMS``: the pane's partial aggregates and the earliest time in it.
    """

    aggregation: Aggregation
    size: int
    count: int
    most = 16

    @cached_property
    def panes(self) -> int:
        return self.count * max(1, min(self.size // (self.count * _PANE_LENGTH), _MOST_PANES))

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        sums = pl.Struct({**self.aggregation.states, EARLIEST: pl.Int64()})
        return {SHARE: pl.Int64(), PANE: pl.Int64(), SUMS: sums}

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.aggregation.key, SHARE)

    @property
    def row_time(self) -> pl.Expr:
        return pl.coalesce(self.aggregation.row_time, pl.col(SUMS).struct.field(EARLIEST))

    def pane(self, time: pl.Expr) -> pl.Expr:
        """The pane of a time; ``size`` later it is ``panes`` more."""
        windows = time // self.size
        return windows * self.panes + (time - windows * self.size) * self.panes // self.size

    def spread(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Every row in its share, and the partial aggregates of its pane in all others."""
        pane = self.pane(self.aggregation.row_time).alias(PANE)
        own = rows.with_columns(pane).with_columns((pl.col(PANE) % self.count).alias(SHARE))
        sums = own.group_by(*self.key, PANE).agg(
            **self.aggregation.partial, **{EARLIEST: self.aggregation.row_time.min()}
        )
        packed = sums.select(*self.aggregation.key, SHARE, PANE, pl.struct(self._summed).alias(SUMS))
        others = [
            packed.with_columns(((pl.col(SHARE) + further) % self.count).alias(SHARE))
            for further in range(1, self.count)
        ]
        return pl.concat([own, *others], how="diagonal").select(*self.aggregation.schema, *self.schema)

    def taken(self, known: pl.DataFrame, fresh: pl.DataFrame) -> pl.DataFrame:
        """Rows that stand for panes, merged by pane."""
        if fresh.is_empty():
            return known
        first = {name: pl.col(name).min() for name in (EARLIEST, TIME, ARRIVAL)}
        any_of = {name: pl.col(name).any() for name in (NEW, CHANGED)}
        parts = pl.concat([known, fresh]).select(*self.key, PANE, TIME, ARRIVAL, NEW, CHANGED, SUMS).unnest(SUMS)
        merged = parts.group_by(*self.key, PANE).agg(**self.aggregation.merged, **first, **any_of)
        packed = merged.with_columns(pl.struct(self._summed).alias(SUMS)).drop(self._summed)
        return pl.concat([known.clear(), packed], how="diagonal")

    def with_others(self, sliding: SlidingTotals, totals: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
        """Totals merged with those of other shares' panes in the windows of their rows."""
        totals = totals.with_columns(self.pane(pl.col(TIME)).alias(PANE))
        wanted = totals.select(*self.key, PANE).unique()
        parts = sums.select(*self.key, PANE, NEW, SUMS).unnest(SUMS).drop(EARLIEST)
        marked = [parts, wanted.with_columns(pl.lit(False).alias(NEW), pl.lit(True).alias(_WANTED))]
        panes = with_key_numbers(pl.concat(marked, how="diagonal"), self.key, of=wanted)
        ordered = in_key_order(panes, PANE)
        windows = ordered.rolling(PANE, period=f"{self.panes}i", closed="right", group_by=KEY_NUMBER)
        found = windows.agg(**self.aggregation.merged, **{REACHED: pl.col(NEW).any()}).drop(KEY_NUMBER, PANE)
        places = ordered.select(*self.key, PANE, _WANTED)
        beyond = pl.concat([places, found], how="horizontal").filter(_WANTED).drop(_WANTED)
        return sliding.with_more(totals, beyond, on=(*self.key, PANE))

    @cached_property
    def _summed(self) -> list[str]:
        return [*self.aggregation.states, EARLIEST]
