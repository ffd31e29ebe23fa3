"""Fixed windows, each with a state row of its own: any emission, any accumulation mode, corrections."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.operators.rows import has_closed, split_matching, with_schema
from headrace.operators.windows.aggregation import GIVEN, NEXT_REVISION, REVISION
from headrace.operators.windows.emission import PREVIEW_AT, UNSEEN, AccumulationMode, Emission
from headrace.operators.windows.pane_operator import END, PaneCombiner
from headrace.wheel.operator import Applied, Due

CHANGED = "__changed"


@dataclass(frozen=True)
class FixedWindowOperator(PaneCombiner):
    """Aggregates rows by key and window; emits previews, the result at the close, and corrections.

    A state row is one window of one key: its partial aggregates (since the last emission, when discarding),
    the revision last emitted, the rows that no emission has shown, and when a preview is due.
    """

    emission: Emission
    accumulation: AccumulationMode

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, END)

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, pane, partial aggregates and the number of rows."""
        return {**self.aggregation.keys, END: pl.Int64(), **self.aggregation.states, UNSEEN: pl.Int64()}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        given = {f"{name}{GIVEN}": dtype for name, dtype in self.aggregation.states.items()} if self._has_change else {}
        return {**self.partial_schema, REVISION: pl.Int32(), PREVIEW_AT: pl.Int64(), **given}

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Add rows, emit previews, close windows up to ``bounds.fire``, correct closed ones, drop expired ones.

        Windows that had closed before this batch (``end <= bounds.late``) are emitted before its rows are added, so
        such rows are corrections.
        """
        opened = partials
        if self.windows.overlapping:
            windows = partials.with_columns(self.windows.all(pl.col(END)).alias(END)).explode(END)
            opened = self.merge(windows.filter(~has_closed(pl.col(END), bounds, self.lateness.correctable)))
        corrections = opened.clear()
        if self.lateness.correctable:
            closed = opened.select(pl.col(END) <= bounds.late).to_series()
            opened, corrections = opened.filter(~closed), opened.filter(closed)
        untouched, taken = self._take(state, opened, bounds)
        state = pl.concat([untouched, taken])
        if corrections.is_empty() and not self._fires(state, bounds):
            # The usual batch: nothing is emitted and nothing expires.
            return Applied(state, taken, state.clear().select(self.identity), self._no_output)
        changed = pl.int_range(state.height, eager=True) >= untouched.height
        return self._emit(state.with_columns(changed.alias(CHANGED)), corrections, bounds)

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest end of an open window, preview, or expiry of a closed window."""
        return self.emission.due(state, self._earliest(state, bounds.fire))

    @cached_property
    def _partial(self) -> dict[str, pl.Expr]:
        unseen = pl.lit(None, pl.Int64) if self.emission.early is None else pl.len().cast(pl.Int64)
        return {**self.aggregation.partial, UNSEEN: unseen}

    @cached_property
    def _merged(self) -> dict[str, pl.Expr]:
        return {**self.aggregation.merged, UNSEEN: pl.col(UNSEEN).sum()}

    def _take(
        self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Merge partial results into the state: untouched windows, and the others (or a few more)."""
        untouched, fresh = state, with_schema(partials, self.state_schema)
        if not state.is_empty() and not partials.is_empty():
            untouched, touched = state.clear(), state
            # Every row that is merged counts as changed, and on_update emits it.
            if self.emission.kind == "on_update" or 2 * partials.height < state.height:
                untouched, touched = split_matching(state, partials, self._grouping(state, partials))
            kept = {name: pl.col(name).drop_nulls().first() for name in self.state_schema if GIVEN in name}
            marks = {REVISION: pl.col(REVISION).max(), PREVIEW_AT: pl.col(PREVIEW_AT).min(), **kept}
            merged = pl.concat([touched, fresh]).group_by(self.identity).agg(**self._merged, **marks)
            fresh = merged.select(self.state_schema.keys())
        planned = self.emission.next_preview(self.windows.start(pl.col(END)), bounds)
        return untouched, fresh.with_columns(planned.alias(PREVIEW_AT))

    def _fires(self, state: pl.DataFrame, bounds: TimeBounds) -> bool:
        due = self._earliest(state, bounds.before)
        if due is not None and due <= bounds.fire:
            return True
        return self.emission.previews and bool(state.select(self.emission.shows(pl.col(END), bounds).any()).item())

    def _emit(self, state: pl.DataFrame, corrections: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Everything that a batch emits; ``CHANGED`` marks rows that are not stored yet."""
        outputs = [self._no_output]
        touched = pl.col(CHANGED) if self.emission.kind == "on_update" else pl.lit(True)
        early = self.emission.shows(pl.col(END), bounds) & touched
        closing = (pl.col(END) > bounds.before) & (pl.col(END) <= bounds.fire)
        for shown, pane in ((early, "early"), (closing, "on_time")):
            state, rows = self._show(state, shown, pane=pane)
            outputs += rows
        if not corrections.is_empty():
            state, corrected = self._correct(state, corrections, bounds)
            state, rows = self._show(state, corrected, pane="late")
            outputs += rows
        over = state.select(pl.col(END) + self.lateness.correctable <= bounds.fire).to_series()
        kept = state.filter(~over)
        return Applied(
            kept.drop(CHANGED),
            kept.filter(pl.col(CHANGED)).drop(CHANGED),
            state.filter(over).select(self.identity),
            # A batch that runs again gives its rows in the same order, whatever the order of the state.
            pl.concat(outputs).sort("window", *self.key, maintain_order=True),
        )

    def _correct(
        self, state: pl.DataFrame, corrections: pl.DataFrame, bounds: TimeBounds
    ) -> tuple[pl.DataFrame, pl.Expr]:
        """The state with late rows merged into closed windows, and which windows that corrected."""
        _, taken = self._take(state.drop(CHANGED), corrections, bounds)
        corrected = taken.join(corrections, on=self.identity, how="semi", nulls_equal=True)
        earlier = state.join(corrected, on=self.identity, how="anti", nulls_equal=True)
        joined = pl.concat([earlier, corrected.with_columns(pl.lit(True).alias(CHANGED))])
        return joined, pl.int_range(pl.len()) >= earlier.height

    def _show(self, state: pl.DataFrame, shown: pl.Expr, *, pane: str) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """Emit windows, and record that in the state."""
        chosen = state.select(shown).to_series()
        if not chosen.any():
            return state, []
        updates: dict[str, pl.Expr] = {
            REVISION: NEXT_REVISION,
            UNSEEN: pl.lit(None, pl.Int64),
            PREVIEW_AT: pl.lit(None, pl.Int64),
            CHANGED: pl.lit(True),
        }
        if self._has_change:
            updates |= {f"{name}{GIVEN}": pl.col(name) for name in self._given}
        if self.accumulation.kind == "discarding":
            updates |= self.aggregation.nothing
        shown_now = state.with_columns(
            pl.when(chosen).then(value).otherwise(pl.col(name)).alias(name) for name, value in updates.items()
        )
        return shown_now, self._revisions(state.filter(chosen), pane)
