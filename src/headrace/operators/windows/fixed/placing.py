"""The map side of fixed windows: rows find their pane, late ones leave, the others are combined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import has_closed
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.fixed.assigners import Windows
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Combined

END = "__end"
"""The end of a pane or window, by which it is known."""


@dataclass(frozen=True, slots=True)
class PaneCombiner:
    """Puts rows into the panes of windows."""

    aggregation: Aggregation
    windows: Windows
    lateness: Lateness

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds, beside: Mapping[str, pl.Expr]) -> Combined:
        """Rows aggregated by key and pane, with what the operator wants ``beside`` the aggregates."""
        aggregation = self.aggregation
        pane = self.windows.pane(aggregation.row_time).alias(END)
        ends = self.windows.last(pl.col(END))
        is_late = aggregation.is_late(bounds, correctable=self.lateness.correctable, closes=ends)
        taken, late = aggregation.split_late(rows.with_columns(pane), bounds, is_late)
        accepted = canonical(taken, aggregation.key)
        by = self.telling(accepted)
        end = {} if END in by else {END: pl.col(END).first()}
        columns = [*aggregation.key, END, *aggregation.states, *beside]
        combined = accepted.group_by(by).agg(**end, **aggregation.partial, **beside).select(columns)
        return Combined(combined, late.drop(END), accepted.height, self._partly_late(accepted, bounds))

    def telling(self, *frames: pl.DataFrame) -> list[str]:
        """The columns that tell panes apart; the key alone, twice as fast to group by, when all have one end."""
        ends = {end for frame in frames for end in (frame[END].min(), frame[END].max())}
        key = self.aggregation.key
        return list(key if key and len(ends) == 1 else (*key, END))

    def _partly_late(self, accepted: pl.DataFrame, bounds: TimeBounds) -> int:
        if not self.windows.overlapping or accepted.is_empty():
            return 0
        missed = has_closed(self.windows.first(pl.col(END)), bounds, self.lateness.correctable)
        return int(accepted.select(missed.sum()).item())
