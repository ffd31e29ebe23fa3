"""The map side of fixed windows: rows find their pane, late ones leave, the others are combined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.fixed.assigners import Windows
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Combined

END = "__end"
"""The end of a pane or window, by which it is known."""


@dataclass(frozen=True, slots=True)
class Placing:
    """Puts rows into the panes of windows."""

    aggregation: Aggregation
    windows: Windows
    lateness: Lateness

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds, beside: Mapping[str, pl.Expr]) -> Combined:
        """Rows aggregated by key and pane, with what the operator wants ``beside`` the aggregates."""
        aggregation = self.aggregation
        pane = self.windows.pane(aggregation.row_time).alias(END)
        placed = canonical(rows, aggregation.key).with_columns(pane)
        accepted, late = placed, rows.clear()
        over = placed.select(self._too_late(bounds)).to_series()
        if over.any():
            accepted, late = placed.filter(~over), rows.filter(over)
        by = self.telling(accepted)
        end = {} if END in by else {END: pl.col(END).first()}
        columns = [*aggregation.key, END, *aggregation.states, *beside]
        combined = accepted.group_by(by).agg(**end, **aggregation.partial, **beside).select(columns)
        return Combined(combined, aggregation.late(late, bounds), accepted.height, self._partly_late(accepted, bounds))

    def telling(self, *frames: pl.DataFrame) -> list[str]:
        """The columns that tell panes apart; the key alone, twice as fast to group by, when all have one end."""
        ends = {end for frame in frames for end in (frame[END].min(), frame[END].max())}
        key = self.aggregation.key
        return list(key if key and len(ends) == 1 else (*key, END))

    def _too_late(self, bounds: TimeBounds) -> pl.Expr:
        return (
            self.windows.last(pl.col(END)) + self.lateness.correctable <= bounds.late
        ) | self.aggregation.is_correction

    def _partly_late(self, accepted: pl.DataFrame, bounds: TimeBounds) -> int:
        if not self.windows.overlapping or accepted.is_empty():
            return 0
        missed = self.windows.first(pl.col(END)) + self.lateness.correctable <= bounds.late
        return int(accepted.select(missed.sum()).item())
