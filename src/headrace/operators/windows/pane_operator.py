"""Overlapping windows that are emitted once: the panes they share are kept once, however many windows share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import has_closed, split_matching, with_schema
from headrace.operators.windows.aggregation import NEXT_REVISION, REVISION, Aggregation, WindowOperator
from headrace.operators.windows.assigners import Windows
from headrace.operators.windows.emission import ACCUMULATING
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined, Due

END = "__end"
"""The end of a pane or window, which identifies it."""
EMITTED = "__emitted"


@dataclass(frozen=True)
class PaneCombiner(WindowOperator):
    """The map side of fixed windows: assigns rows to panes, sets late rows aside and aggregates the others."""

    name: str
    aggregation: Aggregation
    windows: Windows
    lateness: Lateness

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, pane and partial aggregates."""
        return {**self.aggregation.keys, END: pl.Int64(), **self.aggregation.states}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Aggregate rows by key and pane; rows whose windows have all closed are late."""
        aggregation = self.aggregation
        pane = self.windows.pane(aggregation.row_time).alias(END)
        ends = self.windows.last(pl.col(END))
        is_late = aggregation.is_late(bounds, correctable=self.lateness.correctable, closes=ends)
        taken, late = aggregation.split_late(rows.with_columns(pane), bounds, is_late)
        accepted = canonical(taken, aggregation.key)
        by = self._grouping(accepted)
        end = {} if END in by else {END: pl.col(END).first()}
        combined = accepted.group_by(by).agg(**end, **self._partial).select(self.partial_schema.keys())
        partly_late = 0
        if self.windows.overlapping and not accepted.is_empty():
            missed = has_closed(self.windows.first(pl.col(END)), bounds, self.lateness.correctable)
            partly_late = int(accepted.select(missed.sum()).item())
        return Combined(combined, late.drop(END), accepted.height, partly_late)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Merge partial results of the same pane."""
        return partials.group_by(*self.key, END).agg(**self._merged).select(self.partial_schema.keys())

    @property
    def _window(self) -> tuple[pl.Expr, pl.Expr]:
        return self.windows.start(pl.col(END)), pl.col(END)

    @property
    def _partial(self) -> Mapping[str, pl.Expr]:
        """Aggregates the rows of a pane."""
        return self.aggregation.partial

    @property
    def _merged(self) -> Mapping[str, pl.Expr]:
        """Merges the partial results of a pane."""
        return self.aggregation.merged

    def _grouping(self, *frames: pl.DataFrame) -> list[str]:
        """The columns to group panes by; the key alone, which is twice as fast, when all have one end."""
        ends = {end for frame in frames for end in (frame[END].min(), frame[END].max())}
        return list(self.key if self.key and len(ends) == 1 else (*self.key, END))


@dataclass(frozen=True)
class PaneOperator(PaneCombiner):
    """Aggregates rows by key and pane, and panes into a window when it closes or is corrected.

    A state row is a pane of a key with its partial aggregates or, where windows may be corrected, an emitted window
    with its revision.
    """

    accumulation = ACCUMULATING

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, EMITTED, END)

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {**self.partial_schema, EMITTED: pl.Boolean(), REVISION: pl.Int32()}

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Close windows that no row of this batch can be on time for, add the rows, close others, correct, clean up."""
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
        if correctable:
            emitted = emitted.join(fresh, on=self.identity, how="anti", nulls_equal=True)
        else:
            fresh = fresh.clear()
        everything, upserts = pl.concat([panes, emitted, fresh]), pl.concat([taken, fresh])
        is_over = self._last + self.lateness.correctable <= bounds.fire
        over = everything.select(is_over).to_series()
        if not over.any():
            return Applied(everything, upserts, self._no_state.select(self.identity), outputs)
        removed = everything.filter(over).select(self.identity)
        return Applied(everything.filter(~over), upserts.filter(~is_over), removed, outputs)

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest close of a window, or the time at which state expires."""
        closes = pl.when(~pl.col(EMITTED)).then(self.windows.after(pl.col(END), bounds.fire))
        return Due(state.select(pl.coalesce(closes, self._last + self.lateness.correctable).min()).item())

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.partial_schema)

    @cached_property
    def _no_state(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.state_schema)

    @property
    def _last(self) -> pl.Expr:
        """The end of the last window that needs a state row."""
        return pl.when(pl.col(EMITTED)).then(pl.col(END)).otherwise(self.windows.last(pl.col(END)))

    def _take(self, panes: pl.DataFrame, partials: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Merge partial results into the panes: untouched panes, and the others."""
        as_pane = (pl.lit(False).alias(EMITTED), pl.lit(None, pl.Int32).alias(REVISION))
        if panes.is_empty() or partials.is_empty():
            return panes, partials.with_columns(*as_pane)
        untouched, touched = split_matching(panes, partials, [*self.key, END])
        merged = self.merge(pl.concat([touched.select(partials.columns), partials]))
        return untouched, merged.with_columns(*as_pane)

    def _closing(self, panes: pl.DataFrame, after: int, until: int) -> pl.DataFrame:
        """The totals of all windows of these panes with ``after < end <= until``."""
        if until <= after:
            return self._nothing
        concerned = panes.filter((self.windows.first(pl.col(END)) <= until) & (self.windows.last(pl.col(END)) > after))
        if concerned.is_empty():
            return self._nothing
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
        if ends.is_empty():
            return self._nothing.with_columns(pl.lit(None, pl.Int32).alias(REVISION))
        earliest = ends.select(pl.col(END).min()).item() - 1
        totals = self._closing(panes, earliest, bounds.late).join(ends, on=by, how="semi", nulls_equal=True)
        known = totals.join(emitted.select(*by, REVISION), on=by, how="left", nulls_equal=True)
        return known.with_columns(NEXT_REVISION)

    def _shown(self, windows: pl.DataFrame, *, pane: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Result rows of windows, and the state rows that record them as emitted."""
        if windows.is_empty():
            return self._no_output, self._no_state
        emitted = windows.drop(self.aggregation.states).with_columns(pl.lit(True).alias(EMITTED))
        results = self._results(windows, pl.lit(pane)).sort("window", *self.key)
        return results, with_schema(emitted, self.state_schema)
