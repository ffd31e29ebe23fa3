"""Session windows that are emitted once, when they are over, and those that may be emitted again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.operators.rows import with_schema
from headrace.operators.windows.aggregation import GIVEN, REVISION
from headrace.operators.windows.emission import ACCUMULATING, ON_CLOSE, PREVIEW_AT, AccumulationMode, Emission
from headrace.operators.windows.session_combiner import CHAIN, END, FIRST, ROOT, WHOLE, SessionCombiner, chained, cut
from headrace.wheel.operator import Applied

PLACE = "__place"
"""The position of a session in the stored state; null for one that has changed since."""


@dataclass(frozen=True)
class SessionOperator(SessionCombiner):
    """Sessions by key; the state has those that still accept rows."""

    moments: ClassVar[Mapping[str, pl.Expr]] = {"session_id": pl.col(ROOT)}
    identified_by = (FIRST,)

    @property
    def _end(self) -> pl.Expr:
        silent = pl.col(END)
        return silent if self.max_length is None else pl.min_horizontal(silent, pl.col(FIRST) + self.max_length)

    @property
    def _window(self) -> tuple[pl.Expr, pl.Expr]:
        return pl.col(FIRST), self._end

    def _chained(self, parts: pl.DataFrame) -> pl.DataFrame:
        chains = chained(parts, self.key)
        return chains if self.max_length is None else cut(chains, self.max_length, self.gap.longest)

    def _over(self, chains: pl.DataFrame, passed: int) -> pl.Series:
        """Whether the session of each part accepts no more rows when event time has passed a time."""
        sessions = chains.group_by(CHAIN).agg(pl.col(FIRST).min(), pl.col(END).max())
        over = sessions.filter(self._end + self.lateness.correctable <= passed)[CHAIN]
        return chains[CHAIN].is_in(over.implode())

    def _arranged(
        self, known: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Sessions with their new parts, in chains; and the rows of sessions that accept no more rows."""
        added = {**known.schema, WHOLE: self.partial_schema[WHOLE]}
        chains = self._chained(pl.concat([with_schema(known, added), with_schema(partials, added)]))
        if partials[WHOLE].null_count() == partials.height:
            return chains, None
        late = [chains.clear()]
        while (too_late := self._over(chains, bounds.late) & chains[WHOLE].is_not_null()).any():
            late.append(chains.filter(too_late))
            # Without them, later cuts may be elsewhere.
            chains = self._chained(chains.filter(~too_late))
        rows = pl.concat(late).select(pl.col(WHOLE).explode().struct.unnest())
        return chains, self.aggregation.with_late_by(rows, bounds)

    def _gone(self, state: pl.DataFrame, known: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        """Identities that are gone from the stored state before their time is over."""
        changed, unchanged = known.filter(pl.col(PLACE).is_null()), known[PLACE].drop_nulls()
        is_over = self._end + self.lateness.correctable <= bounds.fire
        others = state.filter(~pl.int_range(pl.len()).is_in(unchanged.implode()) & ~is_over).select(self.identity)
        return others.join(changed, on=self.identity, how="anti", nulls_equal=True)


@dataclass(frozen=True)
class FinalSessionOperator(SessionOperator):
    """Aggregates rows by key and session, each a row of the state.

    With a maximum length, where a session is cut depends on all rows before: until event time has passed them, a state
    row has the rows of one key and time.
    """

    emission = ON_CLOSE
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
            chains, late = self._arranged(known, partials, bounds)
            known = self._joined(chains, bounds.fire)
        known, over_now = self._close(known, bounds.fire)
        emitted = pl.concat([over, over_now]).sort(FIRST, *self.key).with_columns(pl.lit(0, pl.Int32).alias(REVISION))
        return Applied(
            known.filter(pl.col(PLACE).is_null()).drop(PLACE),
            self._gone(state, known, bounds),
            self._results(emitted, pl.lit("on_time")),
            late,
        )

    def _close(self, known: pl.DataFrame, passed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The sessions that are open when event time has passed a time, and those that are over."""
        due = known.select(self._end <= passed).to_series()
        if not due.any():
            return known, known.clear()
        if self.max_length is None:
            return known.filter(~due), known.filter(due)
        chains = self._chained(known)
        over = self._over(chains, passed)
        return self._joined(chains.filter(~over), passed), self._joined(chains.filter(over), passed)

    def _joined(self, chains: pl.DataFrame, passed: int) -> pl.DataFrame:
        """The parts of each session merged; where sessions may be cut, later parts only if they have equal times."""
        by: list[str | pl.Expr] = [CHAIN]
        if self.max_length is not None:
            by.append(pl.when(pl.col(END) - self.gap.longest >= passed).then(FIRST).alias("__time"))
        firsts = (pl.col(name).first() for name in self.key)
        # A session of one part is unchanged.
        place = pl.when(pl.len() == 1).then(pl.col(PLACE).first()).alias(PLACE)
        return chains.group_by(by).agg(*firsts, place, **self._merged).select(*self.state_schema, PLACE)


ID = "__id"
TOUCHED, MERGED = "__touched", "__merged"
"""Whether a session has rows of this batch, and whether it has swallowed another one that had been emitted."""


@dataclass(frozen=True)
class RevisedSessionOperator(SessionOperator):
    """Aggregates rows by key and session, each a row of the state, and emits every change of a session."""

    emission: Emission
    accumulation: AccumulationMode
    counts_rows = True
    moved = (FIRST, END)
    moments: ClassVar[Mapping[str, pl.Expr]] = {"session_id": pl.coalesce(ID, ROOT)}
    marks: ClassVar[Mapping[str, pl.Expr]] = {ID: pl.coalesce(ID, ROOT), PLACE: pl.lit(None, pl.Int64)}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        types = self.types
        given = {given: types[name] for name, given in self._given.items()}
        return {**types, PREVIEW_AT: pl.Int64(), ID: pl.Int64(), REVISION: pl.Int32(), **given}

    @property
    def _has_change(self) -> bool:
        return True

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Close sessions that no row can extend, add the rows, emit what has changed."""
        outputs: list[pl.DataFrame] = []
        late = None
        known = state.with_columns(
            pl.int_range(pl.len()).alias(PLACE), pl.lit(False).alias(TOUCHED), pl.lit(False).alias(MERGED)
        )
        known, rows = self._show(known, (self._end > bounds.before) & (self._end <= bounds.late), pane="on_time")
        outputs += rows
        known = self._unexpired(known, bounds.late)
        if not partials.is_empty():
            chains, late = self._arranged(known, partials, bounds)
            known, rows = self._joined(chains.with_columns(pl.col(TOUCHED).fill_null(True)), bounds)
            outputs += rows
        open_ = self._end > bounds.fire
        corrected = pl.col(TOUCHED) & (self._end <= bounds.late)
        changed = pl.col(TOUCHED) if self.emission.kind == "on_update" else pl.lit(True)
        # What was retracted is emitted again at once, so that a table never misses it.
        early = (self.emission.shows(self._end, bounds) & changed) | (pl.col(MERGED) & open_)
        closing = ~open_ & (self._end > max(bounds.before, bounds.late))
        for shown, pane in ((corrected, "late"), (early, "early"), (closing, "on_time")):
            known, rows = self._show(known, shown, pane=pane)
            outputs += rows
        known = self._unexpired(known, bounds.fire)
        return Applied(
            known.filter(pl.col(PLACE).is_null()).select(self.state_schema.keys()),
            self._gone(state, known, bounds),
            # The changes of one session leave in the order in which they happened.
            self._sorted(outputs, "session_id", *self.key),
            late,
        )

    def _unexpired(self, known: pl.DataFrame, passed: int) -> pl.DataFrame:
        over = known.select(self._end + self.lateness.correctable <= passed).to_series()
        return known.filter(~over) if over.any() else known

    def _joined(self, chains: pl.DataFrame, bounds: TimeBounds) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """The parts of each session merged under the first id that was emitted; other emitted ids are retracted."""
        emitted = pl.col(REVISION).is_not_null()
        swallowed = chains.filter(emitted).filter(~pl.col(CHAIN).is_first_distinct())
        columns = [*self.state_schema, PLACE, TOUCHED, MERGED]
        marks = [
            pl.col(PREVIEW_AT).min(),
            *(pl.col(name).filter(emitted).first() for name in (ID, REVISION, *self._given.values())),
            pl.when(pl.len() == 1).then(pl.col(PLACE).first()).alias(PLACE),
            pl.col(TOUCHED).any(),
            (emitted.sum() > 1).alias(MERGED),
        ]
        firsts = (pl.col(name).first() for name in self.key)
        joined = chains.group_by(CHAIN).agg(*firsts, *marks, **self._merged)
        outputs = []
        if not swallowed.is_empty():
            given = self._as_given(swallowed)
            preview = self._end > max(bounds.before, bounds.late)
            pane = pl.when(preview).then(pl.lit("early")).otherwise(pl.lit("late"))
            outputs = [self._results(given.with_columns(pl.col(REVISION) + 1), pane, pl.lit("delete"))]
            if self.accumulation.kind == "discarding":
                # To a session, all that the swallowed ones have emitted is new.
                totals = self._totals(joined, given)
                joined = joined.drop(self.aggregation.states).join(totals, on=CHAIN)
        planned = self.emission.next_preview(pl.col(FIRST), bounds).alias(PREVIEW_AT)
        return joined.with_columns(planned).select(columns), outputs

    def _totals(self, *frames: pl.DataFrame) -> pl.DataFrame:
        parts = pl.concat([frame.select(CHAIN, *self.aggregation.states) for frame in frames])
        return parts.group_by(CHAIN).agg(**self.aggregation.merged)

    def _emitted_in_all(self, windows: pl.DataFrame) -> list[pl.Series]:
        numbered = windows.with_row_index(CHAIN)
        given = self._as_given(numbered.filter(pl.col(REVISION).is_not_null()))
        totals = self._totals(numbered, given).sort(CHAIN)
        return totals.drop(CHAIN).select(pl.all().name.suffix(GIVEN)).get_columns()
