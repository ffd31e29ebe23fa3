"""Overlapping windows that are emitted once: the panes they share are kept once, however many windows share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import has_closed
from headrace.operators.windows.aggregation import REVISION, Aggregation, WindowOperator
from headrace.operators.windows.assigners import Windows
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined, Due

END = "__end"
"""The end of a pane or window, which identifies it."""


@dataclass(frozen=True, slots=True)
class PaneCombiner:
    """The map side of fixed windows: assigns rows to panes, sets late rows aside and aggregates the others."""

    aggregation: Aggregation
    windows: Windows
    lateness: Lateness

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds, beside: Mapping[str, pl.Expr]) -> Combined:
        """Rows aggregated by key and pane, with the further columns ``beside``."""
        aggregation = self.aggregation
        pane = self.windows.pane(aggregation.row_time).alias(END)
        ends = self.windows.last(pl.col(END))
        is_late = aggregation.is_late(bounds, correctable=self.lateness.correctable, closes=ends)
        taken, late = aggregation.split_late(rows.with_columns(pane), bounds, is_late)
        accepted = canonical(taken, aggregation.key)
        by = self.grouping(accepted)
        end = {} if END in by else {END: pl.col(END).first()}
        columns = [*aggregation.key, END, *aggregation.states, *beside]
        combined = accepted.group_by(by).agg(**end, **aggregation.partial, **beside).select(columns)
        return Combined(combined, late.drop(END), accepted.height, self._partly_late(accepted, bounds))

    def grouping(self, *frames: pl.DataFrame) -> list[str]:
        """The columns to group panes by; the key alone, which is twice as fast, when all have one end."""
        ends = {end for frame in frames for end in (frame[END].min(), frame[END].max())}
        key = self.aggregation.key
        return list(key if key and len(ends) == 1 else (*key, END))

    def _partly_late(self, accepted: pl.DataFrame, bounds: TimeBounds) -> int:
        if not self.windows.overlapping or accepted.is_empty():
            return 0
        missed = has_closed(self.windows.first(pl.col(END)), bounds, self.lateness.correctable)
        return int(accepted.select(missed.sum()).item())


EMITTED = "__emitted"


@dataclass(frozen=True)
class PaneOperator(WindowOperator):
    """Aggregates rows by key and pane, and panes into a window when it closes or is corrected.

    A state row is a pane of a key with its partial aggregates or, where windows may be corrected, an emitted window
    with its revision.
    """

    name: str
    aggregation: Aggregation
    windows: Windows
    lateness: Lateness

    @property
    def identity(self) -> tuple[str, ...]:
        """A pane or an emitted window of a key."""
        return (*self.key, EMITTED, END)

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, pane and partial aggregates."""
        return {**self.aggregation.keys, END: pl.Int64(), **self.aggregation.states}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Panes with partial aggregates, emitted windows with their revision."""
        return {**self.partial_schema, EMITTED: pl.Boolean(), REVISION: pl.Int32()}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Aggregate rows by pane; rows whose windows have all closed are late."""
        return self._combiner.combine(rows, bounds, {})

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Merge partial results of the same pane."""
        return partials.group_by(*self.key, END).agg(**self.aggregation.merged).select(self.partial_schema.keys())

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
        over = everything.select(self._over(bounds.fire)).to_series()
        removed = everything.filter(over).select(self.identity) if over.any() else self._no_identity
        if over.any():
            everything, upserts = everything.filter(~over), upserts.filter(~self._over(bounds.fire))
        return Applied(everything, upserts, removed, outputs)

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest close of a window, or the time at which state expires."""
        if state.is_empty():
            return Due()
        following = self.windows.after(pl.col(END), bounds.fire)
        expires = self._last() + self.lateness.correctable
        closes = pl.when(~pl.col(EMITTED)).then(following)
        return Due(int(state.select(pl.coalesce(closes, expires).min()).item()))

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.partial_schema)

    @cached_property
    def _no_state(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.state_schema)

    @cached_property
    def _no_identity(self) -> pl.DataFrame:
        return self._no_state.select(self.identity)

    @cached_property
    def _combiner(self) -> PaneCombiner:
        return PaneCombiner(self.aggregation, self.windows, self.lateness)

    def _last(self) -> pl.Expr:
        """The end of the last window that needs a state row."""
        return pl.when(pl.col(EMITTED)).then(pl.col(END)).otherwise(self.windows.last(pl.col(END)))

    def _over(self, fire: int) -> pl.Expr:
        return self._last() + self.lateness.correctable <= fire

    def _take(self, panes: pl.DataFrame, partials: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Merge partial results into the panes: untouched panes, and the others."""
        as_pane = (pl.lit(False).alias(EMITTED), pl.lit(None, pl.Int32).alias(REVISION))
        fresh = partials.with_columns(*as_pane)
        if panes.is_empty() or partials.is_empty():
            return panes, fresh
        by = [*self.key, END]
        untouched = panes.join(partials, on=by, how="anti", nulls_equal=True)
        touched = panes.join(partials, on=by, how="semi", nulls_equal=True)
        merged = pl.concat([touched, fresh]).group_by(by).agg(**self.aggregation.merged)
        return untouched, merged.with_columns(*as_pane).select(self.state_schema.keys())

    def _closing(self, panes: pl.DataFrame, after: int, until: int) -> pl.DataFrame:
        """The totals of all windows of these panes with ``after < end <= until``."""
        if until <= after:
            return self._nothing
        concerned = panes.filter((self.windows.first(pl.col(END)) <= until) & (self.windows.last(pl.col(END)) > after))
        if concerned.is_empty():
            return self._nothing
        windows = concerned.with_columns(self.windows.all(pl.col(END)).alias(END)).explode(END)
        return self.merge(
            windows.filter((pl.col(END) > after) & (pl.col(END) <= until)).select(self.partial_schema.keys())
        )

    def _corrected(
        self, panes: pl.DataFrame, partials: pl.DataFrame, emitted: pl.DataFrame, bounds: TimeBounds
    ) -> pl.DataFrame:
        """The new totals of closed windows that have rows of this batch, with their next revision."""
        by = [*self.key, END]
        ends = partials.select(*self.key, self.windows.all(pl.col(END)).alias(END)).explode(END)
        ends = ends.filter(
            (pl.col(END) <= bounds.late) & (pl.col(END) + self.lateness.correctable > bounds.late)
        ).unique()
        if ends.is_empty():
            return pl.DataFrame(schema={**self.partial_schema, REVISION: pl.Int32()})
        earliest = ends.select(pl.col(END).min()).item() - 1
        totals = self._closing(panes, earliest, bounds.late).join(ends, on=by, how="semi", nulls_equal=True)
        revisions = emitted.select(*by, REVISION)
        known = totals.join(revisions, on=by, how="left", nulls_equal=True)
        return known.with_columns((pl.col(REVISION).fill_null(-1) + 1).cast(pl.Int32).alias(REVISION))

    def _shown(self, windows: pl.DataFrame, *, pane: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Result rows of windows, and the state rows that record them as emitted."""
        if windows.is_empty():
            return self._no_output, self._no_state
        bounds = self.windows.start(pl.col(END)), pl.col(END)
        return self._results(windows, bounds, pl.lit(pane)).sort("window", *self.key), self._revisions(windows)

    def _revisions(self, windows: pl.DataFrame) -> pl.DataFrame:
        nothing = (pl.lit(None, dtype).alias(name) for name, dtype in self.aggregation.states.items())
        return windows.with_columns(*nothing, pl.lit(True).alias(EMITTED)).select(self.state_schema.keys())
