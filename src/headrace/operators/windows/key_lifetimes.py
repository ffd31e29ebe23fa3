"""The lifetimes of keys: their rows in event-time order, cut where a key expires and where a trigger fires."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import END as END_OF_TIME
from headrace.operators.rows import ARRIVAL
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.emission import AfterRows, Every, Trigger, When

KEPT = -1
"""The arrival number of the state row that stands for a key."""
TIME = "__time"
"""The time of a waiting row, or of the last row that was added to a key."""
ROW, ASKED = "__row", "__asked"
"""The columns of a waiting row that the aggregates read, and whether it meets the trigger's condition."""
FIRST, UNSEEN = "__first", "__unseen"
"""Of a key: when its window began, and how many rows came since it fired; ``REVISION`` is how often it fired."""
LIFE, PIECE, FIRES = "__life", "__piece", "__fires"
_RUN, _BEGINS, _ROWS = "__run", "__begins", "__rows"


@dataclass(frozen=True, slots=True)
class KeyLifetimes:
    """Cuts rows into lifetimes and pieces.

    A key lives from its first row until ``ttl`` has passed since its last one. A piece is the rows of a lifetime up to
    a firing, or after the last firing. Everything follows from the rows' times, so batch boundaries do not matter.
    """

    aggregation: Aggregation
    trigger: Trigger
    ttl: int | None

    def ends(self, bounds: TimeBounds) -> pl.Expr:
        """When a lifetime ends unless another row comes; without a time to live it ends at the end of time."""
        if self.ttl is not None:
            return pl.col(TIME) + self.ttl
        if bounds.fire < END_OF_TIME:
            return pl.lit(None, pl.Int64)
        # A time that is not late for the next step, which has seen everything before ``bounds.before``.
        return pl.max_horizontal(pl.col(TIME), pl.lit(bounds.before, pl.Int64)) + 1

    @property
    def fires_at(self) -> pl.Expr:
        """When a piece that ends with a row fires: at once, or at the next multiple of the duration."""
        if isinstance(self.trigger, Every):
            return (pl.col(TIME) // self.trigger.length + 1) * self.trigger.length
        return pl.col(TIME) + 1

    def due(self, bounds: TimeBounds) -> pl.Expr:
        """When a state row is due without further rows: it is added to its key, fires or expires."""
        firing = pl.lit(None, pl.Int64)
        if isinstance(self.trigger, Every):
            firing = pl.when(pl.col(UNSEEN) > 0).then(self.fires_at)
        of_key = pl.min_horizontal(firing, self.ends(bounds))
        return pl.when(pl.col(ARRIVAL) == KEPT).then(of_key).otherwise(pl.col(TIME) + 1)

    def cut(self, rows: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        """Pieces with their partial aggregates, by key and time, from the state of keys and the rows to add now."""
        key = self.aggregation.key
        run = pl.struct(key).rle_id() if key else pl.lit(0, pl.UInt32)
        same = (pl.col(_RUN) == pl.col(_RUN).shift(1)).fill_null(False)
        silent = pl.lit(False) if self.ttl is None else (pl.col(TIME).diff() >= self.ttl).fill_null(True)
        of_key = pl.col(ARRIVAL) == KEPT
        ordered = (
            rows.sort(*key, TIME, ARRIVAL)
            .with_columns(run.alias(_RUN), pl.when(of_key).then(pl.col(UNSEEN)).otherwise(1).alias(_ROWS))
            .with_columns((~same | silent).alias(_BEGINS))
            .with_columns(pl.col(_BEGINS).cum_sum().alias(LIFE))
            .with_columns((self._fires(bounds) & (pl.col(_ROWS) > 0)).alias(FIRES))
            .with_columns((pl.col(_BEGINS) | pl.col(FIRES).shift(1, fill_value=True)).cum_sum().alias(PIECE))
        )
        began = pl.when(of_key).then(pl.col(FIRST)).otherwise(pl.col(TIME))
        computed = (*key, ARRIVAL, TIME, ROW, ASKED, FIRST, UNSEEN, *self.aggregation.states)
        carried = (name for name in rows.columns if name not in computed)
        pieces = ordered.group_by(PIECE, maintain_order=True).agg(
            *(pl.col(name).first() for name in (*key, LIFE, *carried)),
            pl.col(TIME).last(),
            pl.col(FIRES).last(),
            began.min().alias(FIRST),
            pl.col(_ROWS).sum().alias(UNSEEN),
        )
        return pieces.join(self._totals(ordered), on=PIECE, how="left", maintain_order="left")

    def running(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Pieces with the running totals of their lifetime instead of their own.

        Merges neighbours first, then totals at twice the distance: the rounds grow with the logarithm of the firings.
        """
        states = list(self.aggregation.states)
        totals = pieces.select(PIECE, LIFE, *states)
        longest = int(pieces.select(pl.len().over(LIFE).max()).item())
        distance = 1
        while distance < longest:
            reaching = totals.filter(pl.col(LIFE) == pl.col(LIFE).shift(-distance))
            both = pl.concat([reaching.with_columns(pl.col(PIECE) + distance), totals])
            totals = both.group_by(PIECE).agg(pl.col(LIFE).last(), **self.aggregation.merged).sort(PIECE)
            distance *= 2
        return pieces.with_columns(totals.select(states))

    def _fires(self, bounds: TimeBounds) -> pl.Expr:
        match self.trigger:
            case AfterRows(rows):
                return pl.col(_ROWS).cum_sum().over(LIFE) % rows == 0
            case When():
                return pl.col(ASKED).fill_null(False)
            case Every():
                last = (pl.col(LIFE) != pl.col(LIFE).shift(-1)).fill_null(True)
                reached = (self.fires_at <= bounds.fire) & (self.fires_at < self.ends(bounds)).fill_null(True)
                return pl.when(last).then(reached).otherwise(self.fires_at != self.fires_at.shift(-1))

    def _totals(self, ordered: pl.DataFrame) -> pl.DataFrame:
        taken = ordered.filter(pl.col(ARRIVAL) != KEPT).select(PIECE, ROW).unnest(ROW)
        fresh = taken.group_by(PIECE).agg(**self.aggregation.partial)
        # A key without a first time has emitted and discarded everything.
        something = (pl.col(ARRIVAL) == KEPT) & pl.col(FIRST).is_not_null()
        kept = ordered.filter(something).select(PIECE, *self.aggregation.states)
        if kept.is_empty():
            return fresh
        return pl.concat([kept, fresh]).group_by(PIECE).agg(**self.aggregation.merged)
