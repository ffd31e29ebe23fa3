"""Results before a window closes: which windows are shown early, and when the next one is."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.operators.windows.emission import AfterRows, Emission, Every
from headrace.wheel.operator import Due

UNSEEN, PREVIEW_AT = "__unseen", "__preview_at"
"""The rows that no result has shown yet, and when they will be shown."""


@dataclass(frozen=True, slots=True)
class Previews:
    """The previews of windows as their emission rule has them."""

    emission: Emission

    @property
    def count_rows(self) -> bool:
        """Whether windows must know how many rows no result has shown."""
        return self.emission.early is not None

    def planned(self, start: pl.Expr, bounds: TimeBounds) -> pl.Expr:
        """When windows that have taken rows are shown next."""
        early = self.emission.early
        if not isinstance(early, Every):
            return pl.col(PREVIEW_AT)
        waiting = pl.col(PREVIEW_AT).is_null() & (pl.col(UNSEEN) > 0)
        return pl.when(waiting).then(_following(early, start, bounds)).otherwise(pl.col(PREVIEW_AT))

    def shown(self, end: pl.Expr, bounds: TimeBounds) -> pl.Expr:
        """Whether a window that stays open is shown in this batch, if rows have come since it was shown last."""
        early = self.emission.early
        if early is None:
            return end > bounds.fire if self.emission.kind == "on_update" else pl.lit(False)
        if isinstance(early, AfterRows):
            ready = pl.col(UNSEEN) >= early.rows
        else:
            ready = pl.col(PREVIEW_AT) <= (bounds.clock if early.time == "processing" else bounds.fire)
        return ((end > bounds.fire) & ready).fill_null(False)

    def due(self, state: pl.DataFrame, otherwise: int | None) -> Due:
        """When the next preview or, by event time, something else is due."""
        early = self.emission.early
        if not isinstance(early, Every):
            return Due(otherwise)
        preview: int | None = state.select(pl.col(PREVIEW_AT).min()).item()
        if early.time == "processing":
            return Due(otherwise, preview)
        return Due(min((time for time in (otherwise, preview) if time is not None), default=None))


def _following(early: Every, start: pl.Expr, bounds: TimeBounds) -> pl.Expr:
    if early.time == "processing":
        return pl.lit((bounds.clock // early.length + 1) * early.length, pl.Int64)
    passed = pl.max_horizontal(pl.lit(bounds.fire, pl.Int64), start) - start
    return start + (passed // early.length + 1) * early.length
