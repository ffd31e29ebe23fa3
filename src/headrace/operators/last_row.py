"""The operator that keeps the last row of every key, as a changelog that a later row corrects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, INSERT, POSITION, UPDATE_AFTER, UPDATE_BEFORE, is_setting, sortable
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.key_hash import canonical
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, TIME, RowByRow, Rows, arrivals, with_key_numbers
from headrace.wheel.operator import Applied, Combined, Due

KNOWN = 0
"""The arrival number of the row that the state has of a key."""
_FIRST, _LAST = "__first", "__last"
"""The first and the last arrival of a life: rows of a key that each come less than ``within`` after the one before."""


@dataclass(frozen=True)
class LastRowOperator(RowByRow):
    """Emits the row of every key that has the highest time; the state has it, until nothing can follow it."""

    name: str
    rows: Rows
    within: int
    lateness: Lateness

    @property
    def identity(self) -> tuple[str, ...]:
        return self.key

    @property
    def output_time(self) -> str:
        return self.rows.time

    @property
    def partial_schema(self) -> Mapping[str, pl.DataType]:
        return self.rows.schema

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {**self.rows.schema, TIME: pl.Int64()}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self.rows.schema, **CHANGELOG}

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        return self.rows.late_output(self.lateness)

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        is_late = self.rows.is_late(bounds, correctable=self.lateness.correctable)
        on_time, late = self.rows.split_late(rows, bounds, is_late)
        return Combined(canonical(on_time, self.key).select(self.partial_schema.keys()), late, on_time.height)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        arrived = partials.with_columns(self.rows.row_time.alias(TIME), pl.lit(arrivals(bounds, 1)[0]).alias(ARRIVAL))
        known = state.select(self.state_schema.keys()).with_columns(pl.lit(KNOWN, pl.Int64).alias(ARRIVAL))
        rows = with_key_numbers(pl.concat([known, arrived.select(known.columns)]), self.key, of=partials)
        # Counted for each key: results do not depend on which other keys are in the slot.
        has_arrived = pl.col(ARRIVAL) != KNOWN
        number = pl.col(ARRIVAL) + has_arrived.cum_sum().over(KEY_NUMBER)
        in_order = rows.sort(KEY_NUMBER, maintain_order=True).with_columns(number.cast(pl.Int64).alias(ARRIVAL))
        newest = in_order.filter(pl.col(TIME) == pl.col(TIME).cum_max().over(KEY_NUMBER))
        lives = newest.with_columns(self._ends(-1).alias(_LAST), self._ends(1).alias(_FIRST)).with_columns(
            pl.when(_LAST).then(ARRIVAL).backward_fill().alias(_LAST),
            pl.when(_FIRST).then(ARRIVAL).forward_fill().alias(_FIRST),
        )
        last = lives.unique(KEY_NUMBER, keep="last", maintain_order=True).filter(pl.col(ARRIVAL) != KNOWN)
        return Applied(
            last.filter(self._forgotten_at > bounds.fire).select(self.state_schema.keys()),
            state.clear().select(self.identity),
            self._changes(lives),
            dropped=in_order.height - newest.height,
        )

    def due(self, bounds: TimeBounds) -> Due:
        return Due(dead_at=self._forgotten_at)

    @property
    def _forgotten_at(self) -> pl.Expr:
        return pl.col(TIME) + self.within + self.lateness.correctable

    def _ends(self, step: int) -> pl.Expr:
        """Whether a life ends between a row and the one before it (1) or after it (-1)."""
        distance = (pl.col(TIME) - pl.col(TIME).shift(step)).abs() >= self.within
        return (distance | (pl.col(KEY_NUMBER) != pl.col(KEY_NUMBER).shift(step))).fill_null(True)

    def _changes(self, lives: pl.DataFrame) -> pl.DataFrame:
        """The last row of every life that the batch has begun or gone on with; the known one is taken back before."""
        is_known, is_last = pl.col(ARRIVAL) == KNOWN, pl.col(ARRIVAL) == pl.col(_LAST)
        after = pl.when(pl.col(_FIRST) == KNOWN).then(pl.lit(UPDATE_AFTER)).otherwise(pl.lit(INSERT))
        change = pl.when(is_known).then(pl.lit(UPDATE_BEFORE)).otherwise(after).alias(CHANGE)
        changes = lives.filter(is_known != is_last).with_columns(change).sort(_LAST, is_setting())
        return changes.select(*self.rows.schema, CHANGE, sortable(pl.col(_LAST)).alias(POSITION))
