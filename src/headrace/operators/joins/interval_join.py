"""The interval join: rows of two inputs that are near each other in event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import polars as pl

from headrace.durations import Duration, is_duration, microseconds, not_too_long, spoken
from headrace.errors import DefinitionError, check_choice
from headrace.event_time.record import TimeBounds
from headrace.expressions.operands import Schema
from headrace.operators.joins.join_columns import JoinedColumns, JoinKey, OnColumns, join_key
from headrace.operators.joins.match_strategies import FOREVER, AllMatches, JoinHow, SingleMatch
from headrace.operators.joins.matching import CandidateRows, Int64Array, retained
from headrace.operators.joins.stream_join import RIGHT, JoinInput, StreamJoin, StreamJoinOperator
from headrace.operators.rows import TIME, in_order_of_arrival
from headrace.schemas import MOMENT
from headrace.stability import stable
from headrace.state.order_ranges import OrderRanges
from headrace.wheel.operator import Applied, Due

Bound = int | str
"""A bound of right.time - left.time in microseconds, or a column of the left rows that has a time."""
IntervalBounds = Literal["[]", "[)", "(]", "()"]
Match = Literal["all", "first", "last", "highest", "lowest"]
MATCHED, UNTIL, EVENT_TIME = "__matched", "__until", "event_time"
_RIGHT_ORDER = 2**60
"""How far right rows lie after left ones of the same time: a batch with rows of one side looks for the other's."""


@dataclass(frozen=True, kw_only=True, repr=False)
class IntervalJoin(StreamJoin):
    """A join of rows that are near each other in event time; call ``.late()`` before use."""

    kind = "interval_join"

    between: tuple[Bound, Bound]
    bounds: IntervalBounds
    match: Match
    by: str | None

    def _operator(self, left: JoinInput, right: JoinInput, columns: JoinedColumns, own: Schema) -> IntervalJoinOperator:
        low, high = (self._bound_column(bound, left, right.rows.schema) for bound in self.between)
        by = None if self.by is None else self._ranking_column(self.by, right)
        return IntervalJoinOperator(
            self.name, left, right, columns, own, self.on, self._strategy, low, high, self.bounds, by
        )

    def _bound_column(self, bound: Bound, left: JoinInput, right: Schema) -> str | None:
        """The column of a joined row that has a bound, which must be a time of the left rows."""
        if isinstance(bound, int):
            return None
        schema, time = left.rows.schema, left.rows.time
        if schema.get(bound) == MOMENT and bound != time:
            return left.joined.get(bound, bound)
        times = [name for name, dtype in schema.items() if dtype == MOMENT and name != time]
        advice = f"Their other TIMESTAMP columns: {', '.join(times) or 'none'}."
        if bound in right and bound not in schema:
            advice = "The right rows have it: give the frame whose rows have an interval of their own as the first."
        raise self._wrong(
            "INTERVAL_BOUNDS",
            f"between={self._written_bounds!r}: {bound!r} is neither a duration nor a TIMESTAMP column of the left "
            f"rows beside their event time. {advice}",
        )

    def _ranking_column(self, by: str, right: JoinInput) -> str:
        """The column of a joined row that ranks matches."""
        if by not in right.payload or right.rows.schema[by].is_nested():
            usable = [name for name in right.payload if not right.rows.schema[name].is_nested()]
            raise self._wrong(
                "JOIN_MATCH_BY",
                f"by={by!r} is not a column of the right rows that can be compared, beside their key and event time. "
                f"Use one of {', '.join(usable) or '(none)'}, or match='first' or 'last' to choose by event time.",
            )
        return right.payload[by]

    @property
    def _own_columns(self) -> dict[str, pl.DataType]:
        return {} if self.how in ("semi", "anti") else {EVENT_TIME: MOMENT}

    @property
    def _strategy(self) -> AllMatches | SingleMatch:
        """How rows match, with both bounds included: an open bound is one microsecond further in."""
        low, high = self.between
        # A bound from a column reaches no further back than the left row's own time, and forward as far as it says.
        low = low + (self.bounds[0] == "(") if isinstance(low, int) else 0
        high = high - (self.bounds[1] == ")") if isinstance(high, int) else FOREVER
        if self.match == "all":
            return AllMatches(self.how, low, high)
        return SingleMatch(self.match, self.how == "left", low, high, corrects=self.retention > 0)

    @property
    def retracts(self) -> bool:
        return super().retracts or (self.retention > 0 and self.match != "all")

    @property
    def holdback(self) -> int:
        """How far behind its input's event time a result may leave: rows that wait for a match keep their time.

        Those that wait for an end of their own leave with the time of that end.
        """
        strategy = self._strategy
        left_waits = self.how in ("left", "full", "semi", "anti") or self.match != "all"
        left_waits &= strategy.high < FOREVER
        return max(strategy.high if left_waits else 0, -strategy.low if self.how in ("right", "full") else 0, 0)

    @property
    def horizon(self) -> int:
        return max((abs(bound) for bound in self.between if isinstance(bound, int)), default=0)

    @property
    def state_description(self) -> str:
        left, right = (max(kept, 0) + self.retention for kept in self._strategy.kept)
        if isinstance(self.between[1], str):
            longer = f" and {spoken(self.retention)}" if self.retention else ""
            chosen = "" if self.match == "all" else ", and as long as one that matches them"
            return (
                f"left rows until event time is past their {self.between[1]}{longer}, right rows until it is "
                f"{spoken(right)} behind them{chosen}; at most the left rows that are open + right rate x "
                f"({spoken(right)} + lag) rows{', and the right rows of open left ones' if chosen else ''}"
            )
        return (
            f"left rows until event time is {spoken(left)} behind them, right rows until {spoken(right)}; at most "
            f"left rate x ({spoken(left)} + lag) + right rate x ({spoken(right)} + lag) rows, where lag is how far the "
            f"slower input's watermark is behind the newest row; with 1,000 rows/s on each side and no lag "
            f"{(left + right) // 1_000:,} rows"
        )

    @property
    def _arguments(self) -> Mapping[str, object]:
        bounds = {} if self.bounds == "[]" else {"bounds": self.bounds}
        match = {} if self.match == "all" else {"match": self.match}
        by = {} if self.by is None else {"by": self.by}
        return {**self.on.arguments, "between": self._written_bounds, **bounds, "how": self.how, **match, **by}

    @property
    def _written_bounds(self) -> tuple[str, ...]:
        return tuple(spoken(bound) if isinstance(bound, int) else bound for bound in self.between)


@stable
def interval_join(
    name: str,
    *,
    on: OnColumns | None,
    between: tuple[Duration, Duration],
    bounds: IntervalBounds = "[]",
    how: JoinHow = "inner",
    match: Match = "all",
    by: str | None = None,
    nulls_equal: bool = False,
) -> IntervalJoin:
    """Join rows of two frames with equal ``on`` whose times are near: ``right.time - left.time`` is in ``between``.

    A bound may also be a TIMESTAMP column of the left rows, up to which right rows match. ``match="first"`` or
    ``"last"`` gives each left row one right row instead of all, ``"highest"`` or ``"lowest"`` the best by a column.
    ``on=None`` joins rows whatever their key; with ``nulls_equal`` null equals null.

    >>> interval_join("paid", on="order_id", between=("0 seconds", "1 hour"))
    hr.interval_join('paid', on='order_id', between=('0 seconds', '1 hour'), how='inner')
    >>> interval_join("won", on="auction", between=("0 seconds", "expires"), match="highest", by="price")
    hr.interval_join('won', on='auction', between=('0 seconds', 'expires'), how='inner', match='highest', by='price')
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
    if (match in ("highest", "lowest")) != (by is not None):
        raise DefinitionError(
            "JOIN_MATCH_BY",
            f"step {name!r}: match={match!r} with by={by!r}. match='highest' and 'lowest' need by=, the column of the "
            "right rows to compare, as in match='highest', by='price'; the others take none.",
        )
    interval, key = _interval(name, between), _join_key(on, name, nulls_equal)
    if isinstance(interval[1], str) and how in ("semi", "anti"):
        raise DefinitionError(
            "JOIN_MATCH_HOW",
            f"step {name!r}: how={how!r} emits left rows with their own times, however long they waited for their "
            f"{interval[1]!r}. Use how='inner' with match='first' for rows with a match, or how='left' and keep the "
            "rows without one.",
        )
    step = IntervalJoin(name=name, key=key.left, on=key, between=interval, bounds=bounds, how=how, match=match, by=by)
    if step._strategy.low > step._strategy.high:
        raise DefinitionError(
            "INTERVAL_EMPTY",
            f"step {name!r}: between={tuple(between)!r} with bounds={bounds!r} is empty, so no rows would match. "
            "Give the lower bound of right.time - left.time first.",
        )
    return step


def _join_key(on: OnColumns | None, step: str, nulls_equal: bool) -> JoinKey:
    return JoinKey(()) if on is None else join_key(on, step=step, nulls_equal=nulls_equal)


def _interval(step: str, between: tuple[Duration, Duration]) -> tuple[Bound, Bound]:
    if isinstance(between, str) or len(between) != 2:
        raise DefinitionError(
            "INTERVAL_BOUNDS",
            f"step {step!r}: between={between!r} is not two bounds. Write the least and the greatest value of "
            "right.time - left.time, as in between=('0 seconds', '1 hour').",
        )
    low, high = (_bound(bound) for bound in between)
    return low, high


def _bound(bound: Duration) -> Bound:
    """A length of time, or the name of a column."""
    if isinstance(bound, str) and bound.isidentifier() and not is_duration(bound):
        return bound
    length = microseconds(bound, argument="between")
    not_too_long(abs(length), bound, argument="between")
    return length


@dataclass(frozen=True)
class IntervalJoinOperator(StreamJoinOperator):
    """Joins rows by key and distance in time; a row is buffered until no match can come."""

    strategy: AllMatches | SingleMatch
    low_column: str | None = None
    """The left column that says from when on right rows match; None where the strategy does."""
    high_column: str | None = None
    bounds: IntervalBounds = "[]"
    by: str | None = None
    """The column by which matches are ranked. Columns have their names in a joined row."""

    @property
    def own_state(self) -> Schema:
        """Whether a row matched; with an end from a column also until when it is needed."""
        return {MATCHED: pl.Boolean(), **({} if self.high_column is None else {UNTIL: pl.Int64()})}

    @property
    def output_time(self) -> str:
        """The later of the two times; the left row's own where only left rows are emitted."""
        time = self.left.rows.time
        return EVENT_TIME if EVENT_TIME in self.own else self.left.joined.get(time, time)

    def _moments(self, moments: Int64Array) -> pl.Series:
        return pl.Series(EVENT_TIME, moments).cast(MOMENT)

    def _initial_state(self, arrived: pl.DataFrame) -> pl.DataFrame:
        state = {MATCHED: pl.repeat(False, pl.len(), dtype=pl.Boolean)}
        if self.high_column is not None:
            last = pl.col(self.high_column).cast(pl.Int64) - (self.bounds[1] == ")")
            state[UNTIL] = pl.when(RIGHT).then(pl.col(TIME) + self.strategy.kept[1]).otherwise(last)
        return arrived.select(**state)

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        state = in_order_of_arrival(state)
        rows = self._buffered(state, partials, second, bounds)
        candidates = self._candidates(rows, state.height, bounds)
        outcome = self.strategy.outcome(candidates, bounds)
        pairs, times = outcome.pairs, candidates.times
        moments = np.maximum(times[pairs.either], times[np.where(pairs.right < 0, pairs.left, pairs.right)])
        if self.high_column is not None:
            waited = (pairs.left >= 0) & (isinstance(self.strategy, SingleMatch) | (pairs.right < 0))
            moments = np.where(waited, np.maximum(moments, candidates.last[pairs.left]), moments)
        updated = outcome.matched != candidates.matched
        if updated.any():
            rows.replace_column(rows.get_column_index(MATCHED), pl.Series(MATCHED, outcome.matched))
        if outcome.last_match is not None:
            updated |= outcome.last_match != candidates.last_match
            candidates = replace(candidates, last_match=outcome.last_match)
            rows.replace_column(rows.get_column_index(UNTIL), pl.Series(UNTIL, outcome.last_match))
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
        if self.high_column is not None:
            final = pl.col(UNTIL) + 1
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
        last_match = times + np.where(is_right, right_kept, left_kept)
        first, last = times + self.strategy.low, times + self.strategy.high
        if self.low_column is not None:
            begins = rows[self.low_column].cast(pl.Int64) + (self.bounds[0] == "(")
            without_key = without_key | (begins.is_null().to_numpy() & ~is_right)
            first = np.maximum(times, begins.fill_null(0).to_numpy())
        if self.high_column is not None:
            without_key = without_key | rows[UNTIL].is_null().to_numpy()
            last = last_match = rows[UNTIL].fill_null(rows[TIME]).to_numpy()
        candidates = CandidateRows(
            times=times,
            first=first,
            last=last,
            is_right=is_right,
            is_new=np.arange(rows.height) >= known,
            matched=rows[MATCHED].to_numpy(),
            last_match=last_match,
            without_key=without_key,
            keys=np.full(rows.height, -1, dtype=np.int64),
            ranks=None if self.by is None else self._ranks(rows, self.by),
        )
        triggers = self.strategy.triggers(candidates, bounds) & ~without_key
        keys = self._key_numbers(rows, self.key, triggers)
        # Rows that match nothing have no key, also where all others have the same.
        return replace(candidates, keys=np.where(without_key, -1, keys))

    def _ranks(self, rows: pl.DataFrame, by: str) -> Int64Array:
        """The best row ranks highest; of equal ones the first by time, then by arrival. Null is worse than anything."""
        highest = isinstance(self.strategy, SingleMatch) and self.strategy.match == "highest"
        order = pl.arg_sort_by(by, TIME, descending=[highest, False], nulls_last=True, maintain_order=True)
        ranks = np.empty(rows.height, dtype=np.int64)
        ranks[rows.select(order).to_series().to_numpy()] = -np.arange(rows.height)
        return ranks
