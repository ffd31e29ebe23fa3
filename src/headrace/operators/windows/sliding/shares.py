"""A hot key's rows dealt to several shares, each worked on in a key group of its own.

Time is cut into short panes, and pane ``p`` belongs to share ``p mod count``. A window holds a whole number of panes
that ``count`` divides, so the panes in which a row's window begins and ends are of the same share. What lies between
and belongs to others is whole panes: of these a share needs only the partial aggregates, which are made before the
shuffle. So every row is moved and kept once, and the shares of one key work at the same time though its rows are from
the same minute. (To deal by stretches as long as the window would need no sums, but would give all rows of a batch to
one share, unless the batch spans several windows.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.operators.rows import ARRIVAL, KEY_NUMBER, in_key_order, with_key_numbers
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.sliding.row_windows import CHANGED, NEW, REACHED, TIME

SHARE, PANE, SUMS = "__share", "__pane", "__sums"
EARLIEST = "__earliest"
MOST_SHARES = 16
_PANE_LENGTH = 250_000
_MOST_PANES = 1024
_WANTED = "__wanted"


@dataclass(frozen=True)
class KeySpread:
    """Deals rows to shares by time, and gives each share the sums of the panes of the others.

    A row that stands for a pane has ``SUMS``: the pane's partial aggregates and the earliest time in it.
    """

    aggregation: Aggregation
    size: int
    count: int

    @cached_property
    def panes(self) -> int:
        """How many panes a window holds."""
        return self.count * max(1, min(self.size // (self.count * _PANE_LENGTH), _MOST_PANES))

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        """The columns that rows have besides their own."""
        sums = pl.Struct({**self.aggregation.states, EARLIEST: pl.Int64()})
        return {SHARE: pl.Int64(), PANE: pl.Int64(), SUMS: sums}

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which rows are spread over key groups."""
        return (*self.aggregation.key, SHARE)

    def pane(self, time: pl.Expr) -> pl.Expr:
        """The pane of a time; ``size`` later it is ``panes`` more."""
        windows = time // self.size
        return windows * self.panes + (time - windows * self.size) * self.panes // self.size

    def dealt(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Every row in its share, and the sums of its pane in all others."""
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
        """Rows that stand for panes, merged where they stand for the same one."""
        if fresh.is_empty():
            return known
        first = {name: pl.col(name).min() for name in (EARLIEST, TIME, ARRIVAL)}
        any_of = {name: pl.col(name).any() for name in (NEW, CHANGED)}
        parts = pl.concat([known, fresh]).select(*self.key, PANE, TIME, ARRIVAL, NEW, CHANGED, SUMS).unnest(SUMS)
        merged = parts.group_by(*self.key, PANE).agg(**self.aggregation.merged, **first, **any_of)
        packed = merged.with_columns(pl.struct(self._summed).alias(SUMS)).drop(self._summed)
        return pl.concat([known.clear(), packed], how="diagonal")

    def beyond(self, totals: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
        """For the panes of some rows: the panes of other shares in the windows that end there, added up."""
        wanted = totals.select(*self.key, PANE).unique()
        parts = sums.select(*self.key, PANE, NEW, SUMS).unnest(SUMS).drop(EARLIEST)
        marked = [parts, wanted.with_columns(pl.lit(False).alias(NEW), pl.lit(True).alias(_WANTED))]
        panes = with_key_numbers(pl.concat(marked, how="diagonal"), self.key, of=wanted)
        ordered = in_key_order(panes, PANE)
        windows = ordered.rolling(PANE, period=f"{self.panes}i", closed="right", group_by=KEY_NUMBER)
        found = windows.agg(**self.aggregation.merged, **{REACHED: pl.col(NEW).any()}).drop(KEY_NUMBER, PANE)
        told = ordered.select(*self.key, PANE, _WANTED)
        return pl.concat([told, found], how="horizontal").filter(_WANTED).drop(_WANTED)

    @cached_property
    def _summed(self) -> list[str]:
        return [*self.aggregation.states, EARLIEST]
