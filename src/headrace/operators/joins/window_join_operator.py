"""The window join at run time: rows of two inputs that fall into the same window match when it closes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import polars as pl

from headrace.changelog import CHANGE
from headrace.event_time.record import TimeBounds
from headrace.operators.joins.matching import AllMatches, CandidateRows, RowPairs, concat_pairs
from headrace.operators.joins.stream_join_operator import RIGHT, TIME, JoinInput, StreamJoinOperator
from headrace.operators.rows import ARRIVAL, ROW_NUMBER, has_closed
from headrace.operators.windows.aggregation import WINDOW
from headrace.operators.windows.assigners import Windows
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Due

PANE, END, NEW = "__pane", "__end", "__new"


@dataclass(frozen=True)
class WindowJoinInput(JoinInput):
    """One input of a window join: a row is late when the last of its windows accepts no more rows."""

    windows: Windows

    def too_late(self, bounds: TimeBounds) -> pl.Expr:
        closes = self.windows.last(self.windows.pane(self.rows.row_time))
        return self.rows.is_late(bounds, correctable=self.lateness.correctable, closes=closes)

    def partly_late(self, accepted: pl.DataFrame, bounds: TimeBounds) -> int:
        if not self.windows.overlapping:
            return 0
        closes = self.windows.first(self.windows.pane(self.rows.row_time))
        return int(accepted.select(has_closed(closes, bounds, self.lateness.correctable).sum()).item())


@dataclass(frozen=True)
class WindowJoinOperator(StreamJoinOperator):
    """Joins rows by key and window; a row is buffered until the last of its windows accepts no more rows.

    The state has a row once, however many windows it is in. It does not record which pairs were emitted: as long as
    late rows are accepted, a closed window still has all its rows, from which that can be derived.
    """

    own_state: ClassVar[Mapping[str, pl.DataType]] = {PANE: pl.Int64()}
    output_time = "window"
    """A result's time is the last moment of its window."""
    strategy: AllMatches
    windows: Windows

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        change = {CHANGE: pl.String()} if self.retracts else {}
        return {**self.columns.key, "window": WINDOW, **self.columns.left_schema, **self.columns.right_schema, **change}

    def _initial_state(self, times: pl.Series) -> dict[str, pl.Series]:
        return {PANE: times.to_frame(TIME).select(self.windows.pane(pl.col(TIME))).to_series()}

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        """Close windows up to ``bounds.fire``, correct closed ones, and drop expired rows."""
        rows, arrived = self._buffered(state, partials, second)
        expired = rows.select(self._expires <= bounds.fire).to_series().to_numpy()
        return Applied(
            rows[np.flatnonzero(~expired)] if expired.any() else rows,
            arrived[np.flatnonzero(~expired[state.height :])],
            pl.DataFrame([state[ARRIVAL]])[np.flatnonzero(expired[: state.height])],
            self._output(rows, state.height, bounds),
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        following = pl.coalesce(self.windows.after(pl.col(PANE), bounds.fire), self._expires)
        return Due(state.select(following.min()).item())

    @property
    def _expires(self) -> pl.Expr:
        return self.windows.last(pl.col(PANE)) + self.lateness.correctable

    def _output(self, rows: pl.DataFrame, known: int, bounds: TimeBounds) -> pl.DataFrame:
        """Pairs in windows that close, and in closed windows that got new rows."""
        assigned = self._assigned(rows, known, bounds)
        if assigned.is_empty():
            return pl.DataFrame(schema=self.output_schema)
        outcome = self.strategy.outcome(self._candidates(assigned, bounds), bounds)
        pairs = concat_pairs(outcome.retracted, outcome.emitted)
        row_numbers = assigned[ROW_NUMBER].to_numpy().astype(np.int64)
        ends = assigned[END].to_numpy()[np.where(pairs.left < 0, pairs.right, pairs.left)]
        is_retraction = np.arange(len(ends)) < len(outcome.retracted.left)
        order = np.lexsort((ends, ~is_retraction))
        end = pl.DataFrame({END: ends[order]}, schema={END: pl.Int64()})
        start = self.windows.start(pl.col(END)).cast(MOMENT).alias("start")
        window = end.select(pl.struct(start, pl.col(END).cast(MOMENT).alias("end"))).to_series()
        of_rows = RowPairs(*(np.where(side < 0, -1, row_numbers[side]) for side in (pairs.left, pairs.right)))
        return self._results(rows, of_rows[order], is_retraction[order], {"window": window})

    def _assigned(self, rows: pl.DataFrame, known: int, bounds: TimeBounds) -> pl.DataFrame:
        """Every row in each of its windows that closes now, or that is closed and still accepts rows."""
        end, is_new = pl.col(END), pl.col(NEW)
        accepts_rows = ~has_closed(end, bounds, self.lateness.correctable)
        concerned = (end <= bounds.fire) & (accepts_rows | (~is_new & (end > bounds.before)))
        return (
            rows.lazy()
            .select(*self.key, RIGHT, PANE)
            .with_row_index(ROW_NUMBER)
            .with_columns((pl.col(ROW_NUMBER) >= known).alias(NEW))
            .filter(self.windows.first(pl.col(PANE)) <= bounds.fire)
            .with_columns(self.windows.all(pl.col(PANE)).alias(END))
            .explode(END)
            .filter(concerned)
            .collect()
        )

    def _candidates(self, assigned: pl.DataFrame, bounds: TimeBounds) -> CandidateRows:
        """The rows as candidates within their windows: those of windows that closed before matched already."""
        ends, is_right = assigned[END].to_numpy(), assigned[RIGHT].to_numpy()
        is_new = assigned[NEW].to_numpy() | (ends > bounds.before)
        keys = self._key_numbers(assigned, (*self.key, END), is_new & ~self._without_key(assigned))
        # A buffered row has matched if its window has a buffered row of the other side.
        in_left, in_right = (np.isin(keys, keys[~is_new & side]) for side in (~is_right, is_right))
        matched = ~is_new & (keys >= 0) & np.where(is_right, in_left, in_right)
        # Within a window time does not matter, and rows with a null key have key number -1.
        times, without_key = np.zeros_like(ends), np.zeros(assigned.height, dtype=np.bool_)
        return CandidateRows(times, is_right, is_new, matched, ends - 1, without_key, keys)
