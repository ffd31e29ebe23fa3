"""The rows of two inputs that are near each other in time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from headrace.changelog import CHANGE
from headrace.event_time.record import Edge
from headrace.operators.arrival import ARRIVAL, in_order_of_arrival
from headrace.operators.joins.matching import CandidateRows, MatchStrategy, Places, RowPairs, concat_pairs
from headrace.operators.joins.stream_join_operator import RIGHT, TIME, StreamJoinOperator
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Due

MATCHED = "__matched"
EVENT_TIME = "event_time"


@dataclass(frozen=True)
class IntervalJoinOperator(StreamJoinOperator):
    """Joins rows by key and distance in time; a row is kept until no row that belongs to it can come."""

    meeting: MatchStrategy
    left_kept: int
    """How long after a left row's time rows that belong to it may come; negative when all have come before."""
    right_kept: int
    only_left: bool
    """Whether left rows leave as they are, without a partner."""

    @property
    def output_time(self) -> str:
        """The later of the two times; the row's own where only left rows leave."""
        time = self.left.rows.time
        return self.left.joined.get(time, time) if self.only_left else EVENT_TIME

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """Key, left columns, right columns, the event time, and the change where rows may be taken back."""
        time = {} if self.only_left else {EVENT_TIME: MOMENT}
        return {**self.columns.schema, **time, **({CHANGE: pl.String()} if self.takes_back else {})}

    @property
    def _known(self) -> dict[str, pl.DataType]:
        return {MATCHED: pl.Boolean()}

    def _at_first(self, times: pl.Series) -> dict[str, pl.Series]:
        return {MATCHED: pl.Series(np.zeros(len(times), dtype=np.bool_))}

    def apply_both(self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, edge: Edge) -> Applied:
        """Let rows meet, let those leave for which none can come, and forget what is over."""
        state = in_order_of_arrival(state)
        # Frames are put together and picked apart by places: with few rows in each of many key groups, every query
        # that Polars would plan costs more than its rows.
        arrived = self._arrived(state, partials, second)
        rows = self._with(state, arrived)
        gathered = self._gathered(rows, state.height, edge)
        outcome = self.meeting.outcome(gathered, edge)
        output = self._output(rows, gathered.times, outcome.back, outcome.given)
        turned = outcome.matched != gathered.matched
        if turned.any():
            rows.replace_column(rows.get_column_index(MATCHED), pl.Series(MATCHED, outcome.matched))
        gone = outcome.gone
        unchanged = not turned.any() and not gone[state.height :].any()
        return Applied(
            rows[np.flatnonzero(~gone)] if gone.any() else rows,
            arrived if unchanged else rows[np.flatnonzero((gathered.is_new | turned) & ~gone)],
            pl.DataFrame([state[ARRIVAL]])[np.flatnonzero(gone[: state.height])],
            output,
        )

    def due(self, state: pl.DataFrame, edge: Edge) -> Due:
        """The moment behind the earliest time at which a row can no longer meet another, or is forgotten."""
        if state.is_empty():
            return Due()
        last = self._last(state)
        return Due(int((last + np.where(last < edge.fire, self.lateness.correctable, 0)).min()) + 1)

    def _last(self, rows: pl.DataFrame) -> Places:
        """The last time at which a row may come that belongs to each of these."""
        kept = np.where(rows[RIGHT].to_numpy(), self.right_kept, self.left_kept)
        return rows[TIME].to_numpy() + kept

    def _gathered(self, rows: pl.DataFrame, known: int, edge: Edge) -> CandidateRows:
        alone = self._lacking_key(rows)
        gathered = CandidateRows(
            times=rows[TIME].to_numpy(),
            is_right=rows[RIGHT].to_numpy(),
            is_new=np.arange(rows.height) >= known,
            matched=rows[MATCHED].to_numpy(),
            last=self._last(rows),
            alone=alone,
            keys=np.full(rows.height, -1, dtype=np.int64),
        )
        turning = self.meeting.turning(gathered, edge) & ~alone
        return replace(gathered, keys=self._key_numbers(rows, turning))

    def _output(self, rows: pl.DataFrame, times: Places, back: RowPairs, given: RowPairs) -> pl.DataFrame:
        """RowPairs as rows, in the order of event time; what is taken back comes before all that takes its place."""
        couples = concat_pairs(back, given)
        if not len(couples.left):
            return pl.DataFrame(schema=self.output_schema)
        left, right = couples.left, couples.right
        moments = np.maximum(times[np.where(left < 0, right, left)], times[np.where(right < 0, left, right)])
        taken = np.arange(len(left)) < len(back.left)
        order = np.lexsort((moments, ~taken))
        own = {EVENT_TIME: pl.Series(moments[order]).cast(MOMENT)}
        return self._rows_of(rows, couples[order], taken[order], own)
