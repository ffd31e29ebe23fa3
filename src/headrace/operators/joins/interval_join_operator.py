"""The interval join at run time: rows of two inputs that are near each other in event time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import polars as pl

from headrace.changelog import CHANGE
from headrace.event_time.record import TimeBounds
from headrace.operators.joins.matching import CandidateRows, Int64Array, MatchStrategy, RowPairs, concat_pairs
from headrace.operators.joins.stream_join_operator import RIGHT, TIME, StreamJoinOperator
from headrace.operators.rows import ARRIVAL, in_order_of_arrival
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Due

MATCHED = "__matched"
EVENT_TIME = "event_time"


@dataclass(frozen=True)
class IntervalJoinOperator(StreamJoinOperator):
    """Joins rows by key and distance in time; a row is buffered until no match can come."""

    own_state: ClassVar[Mapping[str, pl.DataType]] = {MATCHED: pl.Boolean()}

    strategy: MatchStrategy
    left_kept: int
    """How long after a left row's time its matches may come; negative when all came before."""
    right_kept: int
    only_left: bool
    """Whether left rows are emitted without the right columns, as semi and anti joins do."""

    @property
    def output_time(self) -> str:
        """The later of the two times; the left row's own where only left rows are emitted."""
        time = self.left.rows.time
        return self.left.joined.get(time, time) if self.only_left else EVENT_TIME

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        time = {} if self.only_left else {EVENT_TIME: MOMENT}
        return {**self.columns.schema, **time, **({CHANGE: pl.String()} if self.retracts else {})}

    def _initial_state(self, times: pl.Series) -> dict[str, pl.Series]:
        return {MATCHED: pl.Series(np.zeros(len(times), dtype=np.bool_))}

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        state = in_order_of_arrival(state)
        # Frames are built and taken apart by row numbers: with few rows in each of many key groups, planning a Polars
        # query costs more than running it.
        rows, arrived = self._buffered(state, partials, second)
        candidates = self._candidates(rows, state.height, bounds)
        outcome = self.strategy.outcome(candidates, bounds)
        output = self._output(rows, candidates.times, outcome.retracted, outcome.emitted)
        updated = outcome.matched != candidates.matched
        if updated.any():
            rows.replace_column(rows.get_column_index(MATCHED), pl.Series(MATCHED, outcome.matched))
        expired = outcome.expired
        only_appended = not updated.any() and not expired[state.height :].any()
        return Applied(
            rows[np.flatnonzero(~expired)] if expired.any() else rows,
            arrived if only_appended else rows[np.flatnonzero((candidates.is_new | updated) & ~expired)],
            pl.DataFrame([state[ARRIVAL]])[np.flatnonzero(expired[: state.height])],
            output,
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        if state.is_empty():
            return Due()
        last = self._last_match(state)
        return Due(int((last + np.where(last < bounds.fire, self.lateness.correctable, 0)).min()) + 1)

    def _last_match(self, rows: pl.DataFrame) -> Int64Array:
        """The latest time at which a match of each row can come."""
        kept = np.where(rows[RIGHT].to_numpy(), self.right_kept, self.left_kept)
        return rows[TIME].to_numpy() + kept

    def _candidates(self, rows: pl.DataFrame, known: int, bounds: TimeBounds) -> CandidateRows:
        without_key = self._without_key(rows)
        candidates = CandidateRows(
            times=rows[TIME].to_numpy(),
            is_right=rows[RIGHT].to_numpy(),
            is_new=np.arange(rows.height) >= known,
            matched=rows[MATCHED].to_numpy(),
            last_match=self._last_match(rows),
            without_key=without_key,
            keys=np.full(rows.height, -1, dtype=np.int64),
        )
        triggers = self.strategy.triggers(candidates, bounds) & ~without_key
        return replace(candidates, keys=self._key_numbers(rows, self.key, triggers))

    def _output(self, rows: pl.DataFrame, times: Int64Array, retracted: RowPairs, emitted: RowPairs) -> pl.DataFrame:
        """Results in the order of event time, all retractions first."""
        pairs = concat_pairs(retracted, emitted)
        if not len(pairs.left):
            return pl.DataFrame(schema=self.output_schema)
        left, right = pairs.left, pairs.right
        moments = np.maximum(times[np.where(left < 0, right, left)], times[np.where(right < 0, left, right)])
        is_retraction = np.arange(len(left)) < len(retracted.left)
        order = np.lexsort((moments, ~is_retraction))
        own = {EVENT_TIME: pl.Series(moments[order]).cast(MOMENT)}
        return self._results(rows, pairs[order], is_retraction[order], own)
