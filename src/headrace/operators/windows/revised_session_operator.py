"""Sessions that may be emitted again: previews, corrections, and sessions that merge after they were emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.operators.windows.aggregation import GIVEN, NEXT_REVISION, REVISION, as_given
from headrace.operators.windows.emission import PREVIEW_AT, UNSEEN, AccumulationMode, Emission
from headrace.operators.windows.session_combiner import CHAIN, END, FIRST, ROOT
from headrace.operators.windows.session_operator import PLACE, SessionOperator
from headrace.wheel.operator import Applied, Due

ID = "__id"
TOUCHED, MERGED = "__touched", "__merged"
"""Whether a session has rows of this batch, and whether it has swallowed another one that had been emitted."""


@dataclass(frozen=True)
class RevisedSessionOperator(SessionOperator):
    """Aggregates rows by key and session, and emits every change of a session.

    A state row is a session of a key: its partial aggregates (since it was emitted last, when discarding),
    the rows that no emission has shown, when a preview is due, and the result, id and revision emitted last.
    """

    emission: Emission
    accumulation: AccumulationMode
    counts_rows = True
    moments: ClassVar[Mapping[str, str]] = {"session_id": ID}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        types = self.types
        given = {f"{name}{GIVEN}": types[name] for name in self._given}
        return {**types, PREVIEW_AT: pl.Int64(), ID: pl.Int64(), REVISION: pl.Int32(), **given}

    @property
    def _has_change(self) -> bool:
        return True

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Close sessions that no row can extend, add the rows, emit what has changed, drop expired sessions."""
        outputs = [self._no_output]
        late = None
        known = state.with_columns(
            pl.int_range(pl.len()).alias(PLACE), pl.lit(False).alias(TOUCHED), pl.lit(False).alias(MERGED)
        )
        known, rows = self._show(known, (self._end > bounds.before) & (self._end <= bounds.late), pane="on_time")
        outputs += rows
        known = self._unexpired(known, bounds.late)
        if not partials.is_empty():
            others, chains, late = self._arranged(known, partials, bounds)
            joined, rows = self._joined(chains.with_columns(pl.col(TOUCHED).fill_null(True)), bounds)
            outputs += rows
            known = pl.concat([others, joined])
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
        kept = known.select(self.state_schema.keys())
        return Applied(
            kept,
            kept.filter(known[PLACE].is_null()),
            self._gone(state, known),
            # The changes of one session leave in the order in which they happened.
            pl.concat(outputs).sort("session_id", *self.key, maintain_order=True),
            late,
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest end of an open session, preview, or expiry of a closed session."""
        return self.emission.due(state, self._earliest(state, bounds.fire))

    @property
    def _given(self) -> tuple[str, ...]:
        return (FIRST, END, *self.aggregation.states)

    def _unexpired(self, known: pl.DataFrame, passed: int) -> pl.DataFrame:
        """The sessions that still accept rows when event time has passed a time."""
        over = known.select(self._end + self.lateness.correctable <= passed).to_series()
        return known.filter(~over) if over.any() else known

    def _joined(self, chains: pl.DataFrame, bounds: TimeBounds) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """The parts of each session merged under the first id that was emitted; other emitted ids are retracted."""
        emitted = pl.col(REVISION).is_not_null()
        swallowed = chains.filter(emitted).filter(~pl.col(CHAIN).is_first_distinct())
        columns = [*self.state_schema, PLACE, TOUCHED, MERGED]
        marks = [
            pl.col(PREVIEW_AT).min(),
            *(pl.col(name).filter(emitted).first() for name in (ID, REVISION)),
            *(pl.col(f"{name}{GIVEN}").filter(emitted).first() for name in self._given),
            pl.when(pl.len() == 1).then(pl.col(PLACE).first()).alias(PLACE),
            pl.col(TOUCHED).any(),
            (emitted.sum() > 1).alias(MERGED),
        ]
        firsts = (pl.col(name).first() for name in self.key)
        joined = chains.group_by(CHAIN).agg(*firsts, *marks, **self._merged)
        outputs = []
        if not swallowed.is_empty():
            given = swallowed.with_columns(as_given(self._given))
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
        """The partial aggregates of all frames by chain."""
        parts = pl.concat([frame.select(CHAIN, *self.aggregation.states) for frame in frames])
        return parts.group_by(CHAIN).agg(**self.aggregation.merged)

    def _show(self, known: pl.DataFrame, shown: pl.Expr, *, pane: str) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """Emit sessions, and record that in the state."""
        chosen = known.select(shown).to_series()
        if not chosen.any():
            return known, []
        before = known.filter(chosen).with_columns(pl.coalesce(ID, ROOT).alias(ID))
        given_now = before.with_columns(
            NEXT_REVISION,
            pl.lit(0, pl.Int64).alias(UNSEEN),
            pl.lit(None, pl.Int64).alias(PREVIEW_AT),
            pl.lit(None, pl.Int64).alias(PLACE),
            *(pl.col(name).alias(f"{name}{GIVEN}") for name in self._given),
        )
        if self.accumulation.kind == "discarding":
            given_now = given_now.with_columns(*self._emitted_in_all(before), **self.aggregation.nothing)
        return pl.concat([known.filter(~chosen), given_now]), self._revisions(before, pane)

    def _emitted_in_all(self, sessions: pl.DataFrame) -> list[pl.Series]:
        """The total of what sessions emit now and have emitted before."""
        numbered = sessions.with_row_index(CHAIN)
        given = numbered.filter(pl.col(REVISION).is_not_null()).with_columns(as_given(self.aggregation.states))
        totals = self._totals(numbered, given).sort(CHAIN)
        return totals.drop(CHAIN).select(pl.all().name.suffix(GIVEN)).get_columns()
