"""Session windows that are emitted once, when they are over; and what all session operators share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.operators.rows import split_matching, with_schema
from headrace.operators.windows.aggregation import REVISION
from headrace.operators.windows.emission import ACCUMULATING
from headrace.operators.windows.session_combiner import CHAIN, END, FIRST, ROOT, WHOLE, SessionCombiner, chained, cut
from headrace.wheel.operator import Applied, Due

PLACE = "__place"
"""The position of a session in the stored state; null for one that has changed since."""


@dataclass(frozen=True)
class SessionOperator(SessionCombiner):
    """Sessions by key; the state has those that still accept rows."""

    moments: ClassVar[Mapping[str, str]] = {"session_id": ROOT}

    @property
    def identity(self) -> tuple[str, ...]:
        """A session of a key, or a part of one, by the time of its first row."""
        return (*self.key, FIRST)

    @property
    def _end(self) -> pl.Expr:
        """Where a session ends."""
        silent = pl.col(END)
        return silent if self.max_length is None else pl.min_horizontal(silent, pl.col(FIRST) + self.max_length)

    @property
    def _window(self) -> tuple[pl.Expr, pl.Expr]:
        return pl.col(FIRST), self._end

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
        late = [chains.clear()]
        while (too_late := self._over(chains, bounds.late) & chains[WHOLE].is_not_null()).any():
            late.append(chains.filter(too_late))
            # Without them, later cuts may be elsewhere.
            chains = self._chained(chains.filter(~too_late))
        rows = pl.concat(late).select(pl.col(WHOLE).explode().struct.unnest())
        return others, chains, self.aggregation.with_late_by(rows, bounds)

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
        return self.types

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Close sessions that no row can extend, add the rows, close sessions that are over then."""
        known = state.with_columns(pl.int_range(pl.len()).alias(PLACE))
        known, over = self._close(known, bounds.late)
        late = None
        if not partials.is_empty():
            others, chains, late = self._arranged(known, partials, bounds)
            known = pl.concat([others, self._joined(chains, bounds.fire)])
        known, over_now = self._close(known, bounds.fire)
        emitted = pl.concat([over, over_now]).sort(FIRST, *self.key).with_columns(pl.lit(0, pl.Int32).alias(REVISION))
        return Applied(
            known.drop(PLACE),
            known.filter(pl.col(PLACE).is_null()).drop(PLACE),
            self._gone(state, known),
            self._results(emitted, pl.lit("on_time")),
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
        return chains.group_by(by).agg(*firsts, place, **self._merged).select(*self.state_schema, PLACE)
