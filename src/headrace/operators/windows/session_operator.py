"""Session windows that are emitted once, when they are over; and what all session operators share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import split_matching, with_schema
from headrace.operators.windows.aggregation import REVISION, Aggregation, WindowOperator
from headrace.operators.windows.emission import ACCUMULATING
from headrace.operators.windows.session_combiner import (
    CHAIN,
    END,
    FIRST,
    ROOT,
    WHOLE,
    Gap,
    SessionCombiner,
    chained,
    cut,
)
from headrace.schemas import MOMENT
from headrace.wheel.operator import Applied, Combined, Due

PLACE = "__place"
"""The position of a session in the stored state; null for one that has changed since."""


@dataclass(frozen=True)
class SessionOperator(WindowOperator):
    """Sessions by key; the state has those that still accept rows."""

    name: str
    aggregation: Aggregation
    gap: Gap
    lateness: Lateness
    max_length: int | None
    counts_rows = False
    """Whether the rows of every session are counted, for previews."""

    @property
    def identity(self) -> tuple[str, ...]:
        """A session of a key, or a part of one, by the time of its first row."""
        return (*self.key, FIRST)

    @property
    def _own_output(self) -> dict[str, pl.DataType]:
        return {"session_id": MOMENT}

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, first time and end, partial aggregates, and the row itself where it may be late."""
        return self._combiner.schema

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        return self._combiner.combine(rows, bounds)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        return self._combiner.merge(partials)

    @cached_property
    def _combiner(self) -> SessionCombiner:
        cutting = self.max_length is not None
        return SessionCombiner(self.aggregation, self.lateness, self.gap, cutting, self.counts_rows)

    @property
    def _end(self) -> pl.Expr:
        """Where a session ends."""
        silent = pl.col(END)
        return silent if self.max_length is None else pl.min_horizontal(silent, pl.col(FIRST) + self.max_length)

    def _chained(self, parts: pl.DataFrame) -> pl.DataFrame:
        """Parts with the number of their session."""
        chains = chained(parts, self.key)
        return chains if self.max_length is None else cut(chains, self.max_length, self.gap.longest)

    def _over(self, chains: pl.DataFrame, passed: int) -> pl.Series:
        """Whether the session of each part accepts no more rows when event time has passed a time."""
        sessions = chains.group_by(CHAIN).agg(pl.col(FIRST).min(), pl.col(END).max())
        over = sessions.filter(self._end + self.lateness.correctable <= passed)[CHAIN]
        return chains[CHAIN].is_in(over.implode())

    def _arranged(
        self, known: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame | None]:
        """Sessions without new parts; the others with their new parts, in chains; and late rows.

        A row is late when its session, with all its known parts, accepts no more rows.
        """
        others, concerned = self._of_keys(known, partials)
        added = {**known.schema, WHOLE: self.partial_schema[WHOLE]}
        chains = self._chained(pl.concat([with_schema(concerned, added), with_schema(partials, added)]))
        if partials[WHOLE].null_count() == partials.height:
            return others, chains, None
        late = [self._combiner.rows_of(chains.clear())]
        while (too_late := self._over(chains, bounds.late) & chains[WHOLE].is_not_null()).any():
            late.append(self._combiner.rows_of(chains.filter(too_late)))
            # Without them, later cuts may be elsewhere.
            chains = self._chained(chains.filter(~too_late))
        return others, chains, self.aggregation.with_late_by(pl.concat(late), bounds)

    def _of_keys(self, known: pl.DataFrame, parts: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Sessions of other keys, and sessions of the keys of these parts (or of a few more)."""
        if not self.key or 2 * parts.height >= known.height:
            return known.clear(), known
        return split_matching(known, parts, self.key)

    def _gone(self, state: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
        """Identities that the stored state had and that are gone."""
        changed, unchanged = known.filter(pl.col(PLACE).is_null()), known[PLACE].drop_nulls()
        others = state.select(self.identity).filter(~pl.int_range(pl.len()).is_in(unchanged.implode()))
        return others.join(changed, on=self.identity, how="anti", nulls_equal=True)


@dataclass(frozen=True)
class FinalSessionOperator(SessionOperator):
    """Aggregates rows by key and session.

    A state row is an open session of a key with its partial aggregates. With a maximum length it is a part of one:
    where a session is cut depends on all rows before, so rows are merged only when event time has passed them; until
    then a state row has the rows of one key and time.
    """

    accumulation = ACCUMULATING

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        return self._combiner.types

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Close sessions that no row can extend, add the rows, close sessions that are over then."""
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
            self._output(pl.concat([over, over_now])),
            late,
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest end of a session."""
        return Due(state.select(self._end.min()).item())

    def _close(self, known: pl.DataFrame, passed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The sessions that are open when event time has passed a time, and those that are over."""
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
        """The parts of each session merged; where sessions may be cut, later parts only if they have equal times."""
        by: list[str | pl.Expr] = [CHAIN]
        if self.max_length is not None:
            by.append(pl.when(pl.col(END) - self.gap.longest >= passed).then(FIRST).alias("__time"))
        firsts = (pl.col(name).first() for name in self.key)
        # A session of one part is unchanged.
        place = pl.when(pl.len() == 1).then(pl.col(PLACE).first()).alias(PLACE)
        return chains.group_by(by).agg(*firsts, place, **self._combiner.merging).select(*self.state_schema, PLACE)

    def _output(self, over: pl.DataFrame) -> pl.DataFrame:
        sessions = over.sort(FIRST, *self.key).with_columns(pl.lit(0, pl.Int32).alias(REVISION))
        session_id = pl.col(ROOT).cast(MOMENT)
        return self._results(sessions, (pl.col(FIRST), self._end), pl.lit("on_time"), session_id=session_id)
