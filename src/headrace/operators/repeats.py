"""Repeats left out: the first row of a key is emitted, others of the same key near it in time are dropped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import KEY_NUMBER, Rows, in_key_order, with_key_numbers
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined, Due

FIRST, TIME, PLACE = "__first", "__time", "__place"


@dataclass(frozen=True)
class DeduplicateOperator:
    """Emits a row unless one of its key was emitted whose time is nearer than ``within``.

    A state row is the key and the time of an emitted row, until no row on time can be near it.
    """

    name: str
    rows: Rows
    within: int
    lateness: Lateness

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.rows.key

    @property
    def identity(self) -> tuple[str, ...]:
        """An emitted row of a key: no two of them have the same time."""
        return (*self.key, FIRST)

    @property
    def output_time(self) -> str:
        """Rows keep their time."""
        return self.rows.time

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Rows travel whole."""
        return dict(self.rows.schema)

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Key and time."""
        return {**self.rows.keys, FIRST: pl.Int64()}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """Rows leave as they came."""
        return dict(self.rows.schema)

    @cached_property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """Late rows, when they are kept."""
        return {"late": self.rows.late_schema} if self.lateness.keeps_rows else {}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Set late rows aside, and drop those that have key and time of an earlier one in the frame."""
        on_time, late = self.rows.split_late(rows, bounds)
        on_time = canonical(on_time, self.key).with_columns(self.rows.row_time.alias(TIME))
        firsts = on_time.unique([*self.key, TIME], keep="first", maintain_order=True)
        return Combined(
            firsts.select(self.partial_schema.keys()),
            late,
            firsts.height,
            dropped=on_time.height - firsts.height,
        )

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rows stay as they are, in the order of their arrival; only the state counts repeats among them."""
        return partials

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Emit the rows that are no repeats, remember them, and forget those that no row on time can be near to."""
        rows = partials.with_columns(self.rows.row_time.alias(TIME)).with_row_index(PLACE)
        emitted = rows[self._first_places(state, rows)].sort(TIME, PLACE)
        fresh = emitted.select(*self.key, pl.col(TIME).alias(FIRST))
        over = pl.col(FIRST) + self.within <= bounds.fire
        fresh = fresh.filter(~over)
        return Applied(
            pl.concat([state.filter(~over), fresh]),
            fresh,
            state.filter(over).select(self.identity),
            emitted.select(self.output_schema.keys()),
            dropped=rows.height - emitted.height,
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest moment at which an emitted row is forgotten."""
        return Due(None if state.is_empty() else int(state.select(pl.col(FIRST).min()).item()) + self.within)

    def _first_places(self, state: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
        """The places of rows that are no repeats."""
        known = state.select(*self.key, pl.col(FIRST).alias(TIME), pl.lit(None, pl.UInt32).alias(PLACE))
        both = with_key_numbers(pl.concat([rows.select(known.columns), known]), self.key, of=rows)
        ordered = in_key_order(both, TIME, PLACE)
        if ordered[PLACE].has_nulls():
            around = ordered.rolling(
                TIME, period=f"{2 * self.within}i", offset=f"-{self.within}i", closed="none", group_by=KEY_NUMBER
            )
            repeats = around.agg(pl.col(PLACE).is_null().any().alias("repeats"))["repeats"]
            ordered = ordered.filter(~repeats & ordered[PLACE].is_not_null())
        return ordered[PLACE].gather(_leaps(ordered, self.within))


def _leaps(ordered: pl.DataFrame, within: int) -> npt.NDArray[np.int64]:
    """From the first row of every key on, again and again the first row that is ``within`` or more behind the last."""
    following = ordered.rolling(TIME, period=f"{within}i", offset="0i", closed="left", group_by=KEY_NUMBER)
    number = ordered[KEY_NUMBER].to_numpy()
    rows = len(number)
    # Rows with equal times count each other, so this is right for the first of them; no leap ends at another.
    # A row is always among those that follow it, unless times are so great that Polars' sums of them wrap.
    steps = np.maximum(following.agg(pl.len().alias("rows"))["rows"].to_numpy(), 1)
    behind = np.arange(rows) + steps
    reached = np.flatnonzero(np.r_[True, number[1:] != number[:-1]][:rows])
    leaps = [reached]
    while len(reached):
        ahead = behind[reached]
        inside = ahead < rows
        inside[inside] = number[ahead[inside]] == number[reached[inside]]
        reached = ahead[inside]
        leaps.append(reached)
    return np.concatenate(leaps)
