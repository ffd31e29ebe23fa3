"""The interval join: rows of two inputs that are near each other in event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import polars as pl

from headrace.durations import Duration, microseconds, not_too_long, spoken
from headrace.errors import DefinitionError, check_choice
from headrace.event_time.record import TimeBounds
from headrace.expressions.operands import Schema
from headrace.operators.joins.join_columns import JoinedColumns, OnColumns, join_key
from headrace.operators.joins.match_strategies import AllMatches, JoinHow, SingleMatch
from headrace.operators.joins.matching import CandidateRows, Int64Array, retained
from headrace.operators.joins.stream_join import RIGHT, JoinInput, StreamJoin, StreamJoinOperator
from headrace.operators.rows import TIME, in_order_of_arrival
from headrace.schemas import MOMENT
from headrace.stability import stable
from headrace.state.order_ranges import OrderRanges
from headrace.wheel.operator import Applied, Due

IntervalBounds = Literal["[]", "[)", "(]", "()"]
Match = Literal["all", "first", "last"]
MATCHED, EVENT_TIME = "__matched", "event_time"
_RIGHT_ORDER = 2**60
"""How far right rows lie after left ones of the same time: a batch with rows of one side looks for the other's."""


@dataclass(frozen=True, kw_only=True, repr=False)
class IntervalJoin(StreamJoin):
    """A join of rows that are near each other in event time; call ``.late()`` before use."""

    kind = "interval_join"

    between: tuple[int, int]
    bounds: IntervalBounds
    match: Match

    def _operator(self, left: JoinInput, right: JoinInput, columns: JoinedColumns, own: Schema) -> IntervalJoinOperator:
        return IntervalJoinOperator(self.name, left, right, columns, own, self._strategy)

    @property
    def _own_columns(self) -> dict[str, pl.DataType]:
        return {} if self.how in ("semi", "anti") else {EVENT_TIME: MOMENT}

    @property
    def _strategy(self) -> AllMatches | SingleMatch:
        """How rows match, with both bounds included: an open bound is one microsecond further in."""
        low, high = self.between
        low, high = low + (self.bounds[0] == "("), high - (self.bounds[1] == ")")
        if self.match == "all":
            return AllMatches(self.how, low, high)
        return SingleMatch(self.match, self.how == "left", low, high, corrects=self.retention > 0)

    @property
    def retracts(self) -> bool:
        return super().retracts or (self.retention > 0 and self.match != "all")

    @property
    def holdback(self) -> int:
        """How far behind its input's event time a result may leave: rows that wait for a match keep their time."""
        strategy = self._strategy
        left_waits = self.how in ("left", "full", "semi", "anti") or self.match != "all"
        return max(strategy.high if left_waits else 0, -strategy.low if self.how in ("right", "full") else 0, 0)

    @property
    def horizon(self) -> int:
        return max(abs(bound) for bound in self.between)

    @property
    def state_description(self) -> str:
        left, right = (max(kept, 0) + self.retention for kept in self._strategy.kept)
        return (
            f"left rows until event time is {spoken(left)} behind them, right rows until {spoken(right)}; at most "
            f"left rate x ({spoken(left)} + lag) + right rate x ({spoken(right)} + lag) rows, where lag is how far the "
            f"slower input's watermark is behind the newest row; with 1,000 rows/s on each side and no lag "
            f"{(left + right) // 1_000:,} rows"
        )

    @property
    def _arguments(self) -> Mapping[str, object]:
        low, high = (spoken(bound) for bound in self.between)
        bounds = {} if self.bounds == "[]" else {"bounds": self.bounds}
        match = {} if self.match == "all" else {"match": self.match}
        return {"on": self.on.as_written, "between": (low, high), **bounds, "how": self.how, **match}


@stable
def interval_join(
    name: str,
    *,
    on: OnColumns,
    between: tuple[Duration, Duration],
    bounds: IntervalBounds = "[]",
    how: JoinHow = "inner",
    match: Match = "all",
) -> IntervalJoin:
    """Join rows of two frames with equal ``on`` whose times are near: ``right.time - left.time`` is in ``between``.

    ``match="first"`` or ``"last"`` gives each left row one right row instead of all.

    >>> interval_join("paid", on="order_id", between=("0 seconds", "1 hour"))
    hr.interval_join('paid', on='order_id', between=('0 seconds', '1 hour'), how='inner')
    """
    check_choice(IntervalBounds, step=name, bounds=bounds)
    check_choice(JoinHow, step=name, how=how)
    check_choice(Match, step=name, match=match)
    if match != "all" and how not in ("inner", "left"):
        raise DefinitionError(
            "JOIN_MATCH_HOW",
            f"step {name!r}: match={match!r} chooses one right row for each left row, which has no meaning with "
            f"how={how!r}. Use how='inner' or how='left', or leave match out.",
        )
    interval, key = _interval(name, between), join_key(on, step=name)
    step = IntervalJoin(name=name, key=key.left, on=key, between=interval, bounds=bounds, how=how, match=match)
    if step._strategy.low > step._strategy.high:
        raise DefinitionError(
            "INTERVAL_EMPTY",
            f"step {name!r}: between={tuple(between)!r} with bounds={bounds!r} is empty, so no rows would match. "
            "Give the lower bound of right.time - left.time first.",
        )
    return step


def _interval(step: str, between: tuple[Duration, Duration]) -> tuple[int, int]:
    if isinstance(between, str) or len(between) != 2:
        raise DefinitionError(
            "INTERVAL_BOUNDS",
            f"step {step!r}: between={between!r} is not two bounds. Write the least and the greatest value of "
            "right.time - left.time, as in between=('0 seconds', '1 hour').",
        )
    low, high = (microseconds(bound, argument="between") for bound in between)
    for length, written in zip((low, high), between, strict=True):
        not_too_long(abs(length), written, argument="between")
    return low, high


@dataclass(frozen=True)
class IntervalJoinOperator(StreamJoinOperator):
    """Joins rows by key and distance in time; a row is buffered until no match can come."""

    own_state: ClassVar[Schema] = {MATCHED: pl.Boolean()}

    strategy: AllMatches | SingleMatch

    @property
    def output_time(self) -> str:
        """The later of the two times; the left row's own where only left rows are emitted."""
        time = self.left.rows.time
        return EVENT_TIME if EVENT_TIME in self.own else self.left.joined.get(time, time)

    def _moments(self, moments: Int64Array) -> pl.Series:
        return pl.Series(EVENT_TIME, moments).cast(MOMENT)

    def _initial_state(self, times: pl.Series) -> pl.Series:
        return pl.Series(MATCHED, np.zeros(len(times), dtype=np.bool_))

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        state = in_order_of_arrival(state)
        rows = self._buffered(state, partials, second, bounds)
        candidates = self._candidates(rows, state.height, bounds)
        outcome = self.strategy.outcome(candidates, bounds)
        pairs, times = outcome.pairs, candidates.times
        moments = np.maximum(times[pairs.either], times[np.where(pairs.right < 0, pairs.left, pairs.right)])
        updated = outcome.matched != candidates.matched
        if updated.any():
            rows.replace_column(rows.get_column_index(MATCHED), pl.Series(MATCHED, outcome.matched))
        output = self._results(rows, pairs, outcome.retracted, moments)
        kept = retained(
            rows,
            known=state.height,
            identity=self.identity,
            expired=candidates.final(bounds.fire - self.left.lateness.correctable),
            altered=updated,
            settled=outcome.settled,
        )
        return Applied(*kept, output)

    def due(self, bounds: TimeBounds) -> Due:
        left_kept, right_kept = self.strategy.kept
        final = pl.col(TIME) + pl.when(RIGHT).then(right_kept).otherwise(left_kept) + 1
        left_waits, right_waits = self.strategy.waits
        waits = pl.when(RIGHT).then(right_waits).otherwise(left_waits)
        return Due(
            pl.when(waits & (final > bounds.fire)).then(final),
            dead_at=final + self.left.lateness.correctable,
            order=pl.col(TIME) + pl.when(RIGHT).then(_RIGHT_ORDER).otherwise(0),
            ranges=partial(self._ranges, bounds=bounds),
        )

    def _ranges(self, frames: Sequence[pl.DataFrame], bounds: TimeBounds) -> OrderRanges:
        new_lefts, new_rights = (frame[TIME].to_numpy() for frame in frames)
        lefts, rights = self.strategy.concerned(new_lefts, new_rights, bounds)
        return OrderRanges.covering(*lefts, *((first + _RIGHT_ORDER, last + _RIGHT_ORDER) for first, last in rights))

    def _candidates(self, rows: pl.DataFrame, known: int, bounds: TimeBounds) -> CandidateRows:
        times, is_right, without_key = rows[TIME].to_numpy(), rows[RIGHT].to_numpy(), self._without_key(rows)
        left_kept, right_kept = self.strategy.kept
        candidates = CandidateRows(
            times=times,
            is_right=is_right,
            is_new=np.arange(rows.height) >= known,
            matched=rows[MATCHED].to_numpy(),
            last_match=times + np.where(is_right, right_kept, left_kept),
            without_key=without_key,
            keys=np.full(rows.height, -1, dtype=np.int64),
        )
        triggers = self.strategy.triggers(candidates, bounds) & ~without_key
        return replace(candidates, keys=self._key_numbers(rows, self.key, triggers))
