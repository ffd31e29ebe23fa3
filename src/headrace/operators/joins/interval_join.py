"""The interval join step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.durations import Duration, microseconds, not_too_long, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.operators.joins.interval_join_operator import EVENT_TIME, IntervalJoinOperator
from headrace.operators.joins.join_columns import JoinedColumns, OnColumns, join_key
from headrace.operators.joins.matching import AllMatches, JoinHow, SingleMatch
from headrace.operators.joins.stream_join import StreamJoin, check_choice
from headrace.operators.joins.stream_join_operator import LATE, LATE_RIGHT, JoinInput
from headrace.operators.rows import Rows
from headrace.stability import stable

IntervalBounds = Literal["[]", "[)", "(]", "()"]
Match = Literal["all", "first", "last"]


@dataclass(frozen=True, kw_only=True, repr=False)
class IntervalJoin(StreamJoin):
    """A join of rows that are near each other in event time; call ``.late()`` before use."""

    kind = "interval_join"

    between: tuple[int, int]
    bounds: IntervalBounds
    match: Match

    def _operator(self, left: Rows, right: Rows, columns: JoinedColumns, lateness: Lateness) -> IntervalJoinOperator:
        emits_left, emits_right = self._emits_unmatched
        low, high = self._closed_interval
        strategy = (
            AllMatches(self.how, low, high, lateness.correctable)
            if self.match == "all"
            else SingleMatch(self.match, self.how == "left", low, high, lateness.correctable)
        )
        return IntervalJoinOperator(
            self.name,
            JoinInput(self.name, left, columns.left, lateness, emits_left, LATE),
            JoinInput("right", right, columns.right, lateness, emits_right, LATE_RIGHT),
            columns,
            lateness,
            self.retracts,
            strategy,
            *self._kept,
            self._only_left,
        )

    @property
    def _own_columns(self) -> tuple[str, ...]:
        return () if self._only_left else (EVENT_TIME,)

    @property
    def _closed_interval(self) -> tuple[int, int]:
        """The same interval with both bounds included: an open bound is one microsecond further in."""
        low, high = self.between
        return low + (self.bounds[0] == "("), high - (self.bounds[1] == ")")

    @property
    def _kept(self) -> tuple[int, int]:
        """How long after its time a left and a right row can match; negative when all matches came before."""
        low, high = self._closed_interval
        # A single match is chosen when the last candidate may have come; all must be buffered until then.
        return high, -low + (max(high, 0) if self.match != "all" else 0)

    @property
    def retracts(self) -> bool:
        return self.retention > 0 and (self.how in ("left", "right", "full", "anti") or self.match != "all")

    @property
    def holdback(self) -> int:
        """How far behind its input's event time a result may leave: rows that wait for a match keep their time."""
        low, high = self._closed_interval
        left_waits = self.how in ("left", "full", "semi", "anti") or self.match != "all"
        return max(high if left_waits else 0, -low if self.how in ("right", "full") else 0, 0)

    @property
    def _identity(self) -> Mapping[str, object]:
        return {
            "on": [list(pair) for pair in self.on.pairs],
            "between": list(self.between),
            "bounds": self.bounds,
            "how": self.how,
            "match": self.match,
        }

    @property
    def horizon(self) -> int:
        return max(abs(bound) for bound in self.between)

    @property
    def state_description(self) -> str:
        left, right = (max(kept, 0) + self.retention for kept in self._kept)
        a_second = 1_000_000
        return (
            f"left rows until event time is {spoken(left)} behind them, right rows until {spoken(right)}; at most "
            f"left rate x ({spoken(left)} + lag) + right rate x ({spoken(right)} + lag) rows, where lag is how far the "
            f"slower input's watermark is behind the newest row; with 1,000 rows/s on each side and no lag "
            f"{1_000 * (left + right) // a_second:,} rows"
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

    ``bounds`` says which ends of the interval belong to it. ``match="first"`` or ``"last"`` gives each left row one
    right row instead of all.

    >>> interval_join("paid", on="order_id", between=("0 seconds", "1 hour"))
    hr.interval_join('paid', on='order_id', between=('0 seconds', '1 hour'), how='inner')
    """
    check_name("step", name)
    for argument, given, known in (("bounds", bounds, IntervalBounds), ("how", how, JoinHow), ("match", match, Match)):
        check_choice(name, argument, given, known)
    if match != "all" and how not in ("inner", "left"):
        raise DefinitionError(
            "JOIN_MATCH_HOW",
            f"step {name!r}: match={match!r} chooses one right row for each left row, which has no meaning with "
            f"how={how!r}. Use how='inner' or how='left', or leave match out.",
        )
    interval, key = _interval(name, between), join_key(on, step=name)
    step = IntervalJoin(name=name, key=key.left, on=key, between=interval, bounds=bounds, how=how, match=match)
    first, last = step._closed_interval
    if first > last:
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
