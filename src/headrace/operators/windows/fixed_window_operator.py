"""Fixed windows: panes that windows share, where each is emitted once; otherwise a state row for each window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.key_hash import canonical
from headrace.operators.rows import has_closed, split_matching, with_schema
from headrace.operators.windows.aggregation import NEXT_REVISION, REVISION, ROW_COUNT, SHOWN_AS, WindowOperator
from headrace.operators.windows.assigners import Windows
from headrace.operators.windows.emission import PREVIEW_AT, UNSEEN
from headrace.operators.windows.triggers import Every
from headrace.state.order_ranges import OrderRanges
from headrace.wheel.operator import Applied, Combined, Due

END = "__end"
"""The end of a pane or window, which identifies it."""
EMITTED = "__emitted"


@dataclass(frozen=True)
class PaneCombiner(WindowOperator):
    """The map side of fixed windows: assigns rows to panes, sets late rows aside and aggregates the others."""

    windows: Windows

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return {**self.aggregation.keys, END: pl.Int64(), **self._states}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Aggregate rows by key and pane; rows whose windows have all closed are late."""
        aggregation = self.aggregation
        pane = self.windows.pane(aggregation.row_time).alias(END)
        ends = self.windows.last(pl.col(END))
        is_late = aggregation.is_late(bounds, correctable=self.lateness.correctable, closes=ends)
        taken, late = aggregation.split_late(rows.with_columns(pane), bounds, is_late)
        accepted = canonical(taken, aggregation.key)
        combined = self._by_pane(accepted, self._partial)
        partly_late = 0
        if self.windows.overlapping and not accepted.is_empty():
            missed = has_closed(self.windows.first(pl.col(END)), bounds, self.lateness.correctable)
            partly_late = int(accepted.select(missed.sum()).item())
        return Combined(combined, late.drop(END), accepted.height, partly_late)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        return self._by_pane(partials, self._merged)

    def _by_pane(self, rows: pl.DataFrame, aggregates: Mapping[str, pl.Expr]) -> pl.DataFrame:
        by = self._grouping(rows)
        end = {} if END in by else {END: pl.col(END).first()}
        return rows.group_by(by).agg(**end, **aggregates).select(self.partial_schema.keys())

    @property
    def _window(self) -> tuple[pl.Expr, pl.Expr]:
        return self.windows.start(pl.col(END)), pl.col(END)

    def _grouping(self, *frames: pl.DataFrame) -> list[str]:
        """The columns to group panes by: when all have one end the key alone, which is twice as fast."""
        ends = {end for frame in frames for end in (frame[END].min(), frame[END].max())}
        return list(self.key if self.key and len(ends) == 1 else (*self.key, END))


@dataclass(frozen=True)
class PaneOperator(PaneCombiner):
    """Aggregates rows by key and pane, and panes into a window when it closes or is corrected.

    The state has the panes of each key and, where windows may be corrected, the revisions of those that were emitted.
    """

    identified_by = (EMITTED, END)

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {**self.partial_schema, EMITTED: pl.Boolean(), REVISION: pl.Int32()}

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Close windows that no row of this batch can be on time for, add the rows, close others, correct."""
        correctable = self.lateness.correctable > 0
        emitted = state.filter(pl.col(EMITTED)) if correctable else state.clear()
        panes = state.filter(~pl.col(EMITTED)) if not emitted.is_empty() else state
        closed = self._closing(panes, bounds.before, min(bounds.late, bounds.fire))
        untouched, taken = self._take(panes, partials)
        panes = pl.concat([untouched, taken])
        closed = pl.concat([closed, self._closing(panes, max(bounds.before, bounds.late), bounds.fire)])
        outputs, fresh = self._shown(closed.with_columns(pl.lit(0, pl.Int32).alias(REVISION)), pane="on_time")
        if correctable and not partials.is_empty():
            corrected = self._corrected(panes, partials, pl.concat([emitted, fresh]), bounds)
            corrections, revised = self._shown(corrected, pane="late")
            outputs = pl.concat([outputs, corrections])
            fresh = pl.concat([fresh.join(revised, on=self.identity, how="anti", nulls_equal=True), revised])
        upserts = pl.concat([taken, fresh]) if correctable else taken
        return Applied(upserts.filter(self._over > bounds.fire), state.clear().select(self.identity), outputs)

    def due(self, bounds: TimeBounds) -> Due:
        closes = pl.when(~pl.col(EMITTED)).then(pl.col(END))
        return Due(
            closes,
            dead_at=self._over,
            reach=self.windows.size,
            following=self.windows.next_close,
            order=pl.col(END),
            ranges=partial(self._ranges, bounds=bounds),
        )

    def _ranges(self, frames: Sequence[pl.DataFrame], bounds: TimeBounds) -> OrderRanges:
        """The panes of new rows, and of windows that close or had closed before; a pane ends after its times."""
        ends = frames[0][END]
        times = self.windows.closing(bounds.before, bounds.fire), self.windows.closed(ends, bounds.late)
        return OrderRanges.covering(
            (ends.to_numpy(), ends.to_numpy()), *((first + 1, last + 1) for first, last in times)
        )

    @property
    def _over(self) -> pl.Expr:
        """When the last window that needs a state row accepts no more rows."""
        last = pl.when(pl.col(EMITTED)).then(pl.col(END)).otherwise(self.windows.last(pl.col(END)))
        return last + self.lateness.correctable

    def _take(self, panes: pl.DataFrame, partials: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        as_pane = (pl.lit(False).alias(EMITTED), pl.lit(None, pl.Int32).alias(REVISION))
        if panes.is_empty() or partials.is_empty():
            return panes, partials.with_columns(*as_pane)
        untouched, touched = split_matching(panes, partials, [*self.key, END])
        merged = self.merge(pl.concat([touched.select(partials.columns), partials]))
        return untouched, merged.with_columns(*as_pane)

    def _closing(self, panes: pl.DataFrame, after: int, until: int) -> pl.DataFrame:
        """The totals of all windows of these panes with ``after < end <= until``."""
        concerned = panes.clear()
        if until > after:
            first, last = self.windows.first(pl.col(END)), self.windows.last(pl.col(END))
            concerned = panes.filter((first <= until) & (last > after))
        if concerned.is_empty():
            return concerned.select(self.partial_schema.keys())
        windows = concerned.with_columns(self.windows.all(pl.col(END)).alias(END)).explode(END)
        return self.merge(windows.filter((pl.col(END) > after) & (pl.col(END) <= until)))

    def _corrected(
        self, panes: pl.DataFrame, partials: pl.DataFrame, emitted: pl.DataFrame, bounds: TimeBounds
    ) -> pl.DataFrame:
        """The new totals of closed windows that have rows of this batch, with their next revision."""
        by = [*self.key, END]
        ends = partials.select(*self.key, self.windows.all(pl.col(END)).alias(END)).explode(END)
        is_correctable = (pl.col(END) <= bounds.late) & (pl.col(END) + self.lateness.correctable > bounds.late)
        ends = ends.filter(is_correctable).unique()
        earliest = ends.select(pl.col(END).min()).item() - 1 if ends.height else bounds.late
        totals = self._closing(panes, earliest, bounds.late).join(ends, on=by, how="semi", nulls_equal=True)
        known = totals.join(emitted.select(*by, REVISION), on=by, how="left", nulls_equal=True)
        return known.with_columns(NEXT_REVISION)

    def _shown(self, windows: pl.DataFrame, *, pane: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Result rows of windows, and the state rows that record them as emitted."""
        if windows.is_empty():
            return self._no_output, pl.DataFrame(schema=self.state_schema)
        emitted = windows.drop(self.aggregation.states).with_columns(pl.lit(True).alias(EMITTED))
        results = self._results(windows.with_columns(pl.lit(pane).alias(SHOWN_AS)))
        results = results.sort("window", *self.key, maintain_order=True)
        return results, with_schema(emitted, self.state_schema)


CHANGED = "__changed"


@dataclass(frozen=True)
class FixedWindowOperator(PaneCombiner):
    """Aggregates rows by key and window, each a row of the state; emits previews, results and corrections."""

    identified_by = (END,)
    marks: ClassVar[Mapping[str, pl.Expr]] = {CHANGED: pl.lit(True)}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {**self.partial_schema, PREVIEW_AT: pl.Int64(), **self._ledger}

    def due(self, bounds: TimeBounds) -> Due:
        due = super().due(bounds)
        if self.emission.late is not None and due.event is not None:
            # What no correction has shown is due when the window takes no more rows.
            ends = pl.when((pl.col(END) <= bounds.fire) & (pl.col(UNSEEN) > 0)).then(due.dead_at)
            due = replace(due, event=pl.coalesce(ends, due.event))
        if isinstance(self.emission.early, Every):
            # Previews are due in windows that their ends do not tell.
            return replace(due, order=pl.col(END))
        return replace(due, order=pl.col(END), ranges=partial(self._ranges, bounds=bounds))

    def _ranges(self, frames: Sequence[pl.DataFrame], bounds: TimeBounds) -> OrderRanges:
        """The windows of new rows, and those that close."""
        first, last = self.windows.first(pl.col(END)).alias("first"), self.windows.last(pl.col(END)).alias("last")
        ends = frames[0].select(first, last)
        closing = [(bounds.before + 1 - kept, bounds.fire - kept) for kept in {0, self._shown_late_for}]
        return OrderRanges.covering((ends["first"].to_numpy(), ends["last"].to_numpy()), *closing)

    @property
    def _shown_late_for(self) -> int:
        """How long after its end a window may still have late rows to show."""
        return 0 if self.emission.late is None else self.lateness.correctable

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Add rows, emit previews, close windows; rows of those that had closed before this batch are corrections."""
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
        fires = self._closes(bounds) | self.emission.shows(pl.col(END), bounds) | self._shows_late(bounds)
        if corrections.is_empty() and not state.select(fires.any()).item():
            # The usual batch: nothing is emitted.
            return Applied(taken, state.clear().select(self.identity), self._no_output)
        changed = pl.int_range(state.height, eager=True) >= untouched.height
        return self._emit(state.with_columns(changed.alias(CHANGED)), corrections, bounds)

    @property
    def _counted(self) -> Mapping[str, pl.Expr]:
        return ROW_COUNT if self.emission.counts else {UNSEEN: pl.lit(None, pl.Int64)}

    def _take(
        self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Merge partial results into the state: untouched windows, and the others."""
        untouched, fresh = state, with_schema(partials, self.state_schema)
        if not state.is_empty() and not partials.is_empty():
            untouched, touched = split_matching(state, partials, self._grouping(state, partials))
            kept = {name: pl.col(name).drop_nulls().first() for name in self._given.values()}
            marks = {REVISION: pl.col(REVISION).max(), PREVIEW_AT: pl.col(PREVIEW_AT).min(), **kept}
            merged = pl.concat([touched, fresh]).group_by(self.identity).agg(**self._merged, **marks)
            fresh = merged.select(self.state_schema.keys())
        planned = self.emission.next_preview(self.windows.start(pl.col(END)), bounds)
        return untouched, fresh.with_columns(planned.alias(PREVIEW_AT))

    def _closes(self, bounds: TimeBounds) -> pl.Expr:
        return (pl.col(END) > bounds.before) & (pl.col(END) <= bounds.fire)

    def _shows_late(self, bounds: TimeBounds) -> pl.Expr:
        """Which closed windows have enough late rows for a correction, or show the last of them."""
        if self.emission.late is None:
            return pl.lit(False)
        over = pl.col(END) + self.lateness.correctable <= bounds.fire
        enough = over | (pl.col(UNSEEN) >= self.emission.late.rows)
        return ((pl.col(END) <= bounds.fire) & (pl.col(UNSEEN) > 0) & enough).fill_null(False)

    def _emit(self, state: pl.DataFrame, corrections: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Everything that a batch emits; ``CHANGED`` marks rows that are not stored yet."""
        outputs: list[pl.DataFrame] = []
        touched = pl.col(CHANGED) if self.emission.kind == "on_update" else pl.lit(True)
        early = self.emission.shows(pl.col(END), bounds) & touched
        closes = self._closes(bounds) if self.emission.kind != "early_only" else pl.lit(False)
        for shown, pane in ((early, "early"), (closes, "on_time")):
            state, rows = self._show(state, shown, pane=pane)
            outputs += rows
        corrected = pl.lit(False)
        if not corrections.is_empty():
            state, corrected = self._correct(state, corrections, bounds)
        if self.emission.late is not None:
            corrected = self._shows_late(bounds)
        state, rows = self._show(state, corrected, pane="late")
        outputs += rows
        accepts_rows = pl.col(END) + self.lateness.correctable > bounds.fire
        return Applied(
            state.filter(pl.col(CHANGED) & accepts_rows).drop(CHANGED),
            state.clear().select(self.identity),
            self._sorted(outputs, "window", *self.key),
        )

    def _correct(
        self, state: pl.DataFrame, corrections: pl.DataFrame, bounds: TimeBounds
    ) -> tuple[pl.DataFrame, pl.Expr]:
        """The state with late rows merged into closed windows, and which windows that corrected."""
        _, corrected = self._take(state.drop(CHANGED), corrections, bounds)
        earlier = state.join(corrected, on=self.identity, how="anti", nulls_equal=True)
        joined = pl.concat([earlier, corrected.with_columns(pl.lit(True).alias(CHANGED))])
        return joined, pl.int_range(pl.len()) >= earlier.height
