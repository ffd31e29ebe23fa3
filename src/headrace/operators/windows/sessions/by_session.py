"""Sessions that are emitted once, when they are over; with a greatest length, long ones are cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.operators.windows.sessions.chains import CHAIN, END, FIRST, chained, cut
from headrace.operators.windows.sessions.gathering import ROOT, SessionCombiner
from headrace.operators.windows.sessions.session_keeping import PLACE, SessionOperator
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Due


@dataclass(frozen=True)
class FinalSessionOperator(SessionOperator):
    """Aggregates rows by key and session.

    A state row is an open session of a key with its partial aggregates. With a greatest length it is a part of one:
    where a session is cut depends on every row before, so rows are joined only when event time has passed them, and
    until then a state row holds the rows of one key and time.
    """

    max_length: int | None

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Key, first time, end and partial aggregates."""
        return self._combiner.types

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Close sessions that no row can keep open, take rows in, close what is over then."""
        known = state.with_columns(pl.int_range(pl.len()).alias(PLACE))
        known, over = self._close(known, bounds.late)
        late = None
        if not partials.is_empty():
            others, chains, late = self._arranged(known, partials, bounds)
            known = pl.concat([others, self._joined(chains, bounds.fire)])
        known, over_now = self._close(known, bounds.fire)
        return Applied(
            known.drop(PLACE),
            known.filter(pl.col(PLACE).is_null()).drop(PLACE),
            self._gone(state, known),
            self._results(pl.concat([over, over_now])),
            late,
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest end of a session."""
        return Due(state.select(self._end.min()).item())

    @cached_property
    def _combiner(self) -> SessionCombiner:
        return SessionCombiner(self.aggregation, self.lateness, self.gap, self.max_length is not None, counting=False)

    @property
    def _end(self) -> pl.Expr:
        silent = pl.col(END)
        return silent if self.max_length is None else pl.min_horizontal(silent, pl.col(FIRST) + self.max_length)

    def _chained(self, parts: pl.DataFrame) -> pl.DataFrame:
        chains = chained(parts, self.key)
        return chains if self.max_length is None else cut(chains, self.max_length, self.gap.longest)

    def _close(self, known: pl.DataFrame, passed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The sessions that are open when time has passed a moment, and those that are over."""
        due = known.select(self._end <= passed).to_series()
        if not due.any():
            return known, known.clear()
        if self.max_length is None:
            return known.filter(~due), known.filter(due)
        others, concerned = self._of_keys(known, known.filter(due))
        chains = self._chained(concerned)
        over = self._over(chains, passed)
        still_open = self._joined(chains.filter(~over), passed)
        return pl.concat([others, still_open]), self._joined(chains.filter(over), passed)

    def _joined(self, chains: pl.DataFrame, passed: int) -> pl.DataFrame:
        """The parts of a session made one; where it may be cut, parts that time has not passed by equal time only."""
        by: list[str | pl.Expr] = [CHAIN]
        if self.max_length is not None:
            by.append(pl.when(pl.col(END) - self.gap.longest >= passed).then(FIRST).alias("__time"))
        firsts = (pl.col(name).first() for name in self.key)
        # A session to which nothing was added is as it is stored.
        place = pl.when(pl.len() == 1).then(pl.col(PLACE).first()).alias(PLACE)
        return chains.group_by(by).agg(*firsts, place, **self._combiner.merging).select(*self.state_schema, PLACE)

    def _results(self, over: pl.DataFrame) -> pl.DataFrame:
        sessions = over.sort(FIRST, *self.key)
        start = pl.col(FIRST).cast(MOMENT)
        return sessions.select(
            *self.key,
            pl.struct(start.alias("start"), self._end.cast(MOMENT).alias("end")).alias("window"),
            pl.col(ROOT).cast(MOMENT).alias("session_id"),
            *self.aggregation.result(sessions),
            pl.lit("on_time").alias("pane"),
            pl.lit(0, pl.Int32).alias("revision"),
        )
