"""The rows of two inputs that fall into the same window: they meet when it closes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from headrace.changelog import CHANGE
from headrace.event_time.record import Edge
from headrace.operators.arrival import ARRIVAL
from headrace.operators.joins.matching import AllMatches, CandidateRows, Flags, Places, RowPairs, concat_pairs
from headrace.operators.joins.stream_join_operator import PLACE, RIGHT, TIME, JoinInput, StreamJoinOperator
from headrace.operators.key_order import KEY_NUMBER, with_key_numbers
from headrace.operators.windows.aggregation import WINDOW
from headrace.operators.windows.fixed.assigners import Windows
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Due

PANE, END, NEW = "__pane", "__end", "__new"


@dataclass(frozen=True)
class WindowJoinInput(JoinInput):
    """One input of a join by window: a row is late when the last of its windows takes no rows any more."""

    windows: Windows

    def too_late(self, edge: Edge) -> pl.Expr:
        """Whether a row comes too late for all its windows."""
        return (self._taken(last=True) <= edge.late) | self.rows.is_correction

    def partly_late(self, accepted: pl.DataFrame, edge: Edge) -> int:
        """How many accepted rows came too late for some of their windows."""
        if not self.windows.overlapping:
            return 0
        return int(accepted.select((self._taken(last=False) <= edge.late).sum()).item())

    def _taken(self, *, last: bool) -> pl.Expr:
        """Until when the last or the first window of a row takes rows."""
        pane = self.windows.pane(self.rows.row_time)
        return (self.windows.last(pane) if last else self.windows.first(pane)) + self.lateness.correctable


@dataclass(frozen=True)
class WindowJoinOperator(StreamJoinOperator):
    """Joins rows by key and window; a row is kept until the last of its windows takes no rows any more.

    A row lies in the state once, whatever the number of its windows. Which couples have left is not kept: all rows of
    a window that has closed are there as long as late ones may come, so it can be told from them.
    """

    meeting: AllMatches
    windows: Windows

    @property
    def output_time(self) -> str:
        """A result's time is the last moment of its window."""
        return "window"

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """Key, window, left columns, right columns, and the change where rows may be taken back."""
        change = {CHANGE: pl.String()} if self.takes_back else {}
        return {**self.columns.key, "window": WINDOW, **self.columns.left_schema, **self.columns.right_schema, **change}

    @property
    def _known(self) -> dict[str, pl.DataType]:
        return {PANE: pl.Int64()}

    def _at_first(self, times: pl.Series) -> dict[str, pl.Series]:
        return {PANE: times.to_frame(TIME).select(self.windows.pane(pl.col(TIME))).to_series()}

    def apply_both(self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, edge: Edge) -> Applied:
        """Close windows up to ``edge.fire``, correct closed ones, and forget what is over."""
        arrived = self._arrived(state, partials, second)
        rows = self._with(state, arrived)
        output = self._output(rows, state.height, edge)
        gone = rows.select(self._forgotten <= edge.fire).to_series().to_numpy()
        return Applied(
            rows[np.flatnonzero(~gone)] if gone.any() else rows,
            arrived[np.flatnonzero(~gone[state.height :])],
            pl.DataFrame([state[ARRIVAL]])[np.flatnonzero(gone[: state.height])],
            output,
        )

    def due(self, state: pl.DataFrame, edge: Edge) -> Due:
        """The earliest end of a window that has not closed, or moment at which a row is forgotten."""
        following = pl.coalesce(self.windows.after(pl.col(PANE), edge.fire), self._forgotten)
        return Due(state.select(following.min()).item())

    @property
    def _forgotten(self) -> pl.Expr:
        return self.windows.last(pl.col(PANE)) + self.lateness.correctable

    def _output(self, rows: pl.DataFrame, known: int, edge: Edge) -> pl.DataFrame:
        """RowPairs in windows that close, and in closed windows into which new rows have come."""
        spread = self._spread(rows, known, edge)
        if spread.is_empty():
            return pl.DataFrame(schema=self.output_schema)
        gathered = self._gathered(spread, edge)
        outcome = self.meeting.outcome(gathered, edge)
        couples, places = concat_pairs(outcome.back, outcome.given), spread[PLACE].to_numpy().astype(np.int64)
        ends = spread[END].to_numpy()[np.where(couples.left < 0, couples.right, couples.left)]
        taken = np.arange(len(ends)) < len(outcome.back.left)
        order = np.lexsort((ends, ~taken))
        end = pl.DataFrame({END: ends[order]}, schema={END: pl.Int64()})
        start = self.windows.start(pl.col(END)).cast(MOMENT).alias("start")
        window = end.select(pl.struct(start, pl.col(END).cast(MOMENT).alias("end"))).to_series()
        of_rows = RowPairs(_of(places, couples.left), _of(places, couples.right))
        return self._rows_of(rows, of_rows[order], taken[order], {"window": window})

    def _spread(self, rows: pl.DataFrame, known: int, edge: Edge) -> pl.DataFrame:
        """Every row in each of its windows in which something may happen."""
        end, is_new = pl.col(END), pl.col(NEW)
        takes_rows = end + self.lateness.correctable > edge.late
        happens = (end <= edge.fire) & (takes_rows | (~is_new & (end > edge.before)))
        return (
            rows.lazy()
            .select(*self.key, RIGHT, PANE)
            .with_row_index(PLACE)
            .with_columns((pl.col(PLACE) >= known).alias(NEW))
            .filter(self.windows.first(pl.col(PANE)) <= edge.fire)
            .with_columns(self.windows.all(pl.col(PANE)).alias(END))
            .explode(END)
            .filter(happens)
            .collect()
        )

    def _gathered(self, spread: pl.DataFrame, edge: Edge) -> CandidateRows:
        """The rows as they meet in windows: those of windows that have closed before have met already."""
        ends, is_right = spread[END].to_numpy(), spread[RIGHT].to_numpy()
        is_new = spread[NEW].to_numpy() | (ends > edge.before)
        alone = self._lacking_key(spread)
        keys = np.full(spread.height, -1, dtype=np.int64)
        by = (*self.key, END)
        told = spread.select(*by, PLACE).with_columns(pl.Series(PLACE, np.arange(spread.height)))
        turning = np.flatnonzero(is_new & ~alone)
        if len(turning):
            found = with_key_numbers(told, by, of=told[turning])
            keys[found[PLACE].to_numpy()] = found[KEY_NUMBER].to_numpy()
        nowhen = np.zeros_like(ends)
        matched = _met_before(keys, is_right, ~is_new)
        return CandidateRows(nowhen, is_right, is_new, matched, ends - 1, np.zeros_like(alone), keys)


def _met_before(keys: Places, is_right: Flags, old: Flags) -> Flags:
    """Which rows of earlier batches share their window with one of the other side."""
    known = np.unique(keys[old & is_right]), np.unique(keys[old & ~is_right])
    return old & (keys >= 0) & np.where(is_right, np.isin(keys, known[1]), np.isin(keys, known[0]))


def _of(places: Places, chosen: Places) -> Places:
    return np.where(chosen < 0, -1, places[chosen])
