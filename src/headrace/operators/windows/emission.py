"""When a window is emitted (emission and triggers), and how its results relate (accumulation mode)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.operators.windows.triggers import AfterRows, Every, Trigger
from headrace.stability import stable
from headrace.wheel.operator import Due

UNSEEN, PREVIEW_AT = "__unseen", "__preview_at"
"""How many rows no result has shown yet, and when they will be shown."""


@dataclass(frozen=True, slots=True)
class Emission:
    """When a window that closes is emitted."""

    kind: Literal["on_close", "on_update", "early_only"]
    early: Trigger | None = None
    late: AfterRows | None = None
    """How many late rows a closed window needs for a correction; None for any, after each batch."""

    @property
    def counts(self) -> bool:
        """Whether windows count the rows that no result has shown."""
        return self.early is not None or self.late is not None

    @property
    def previews(self) -> bool:
        """Whether results are emitted that a later one replaces, before the window closes."""
        return self.kind == "on_update" or self.early is not None

    def next_preview(self, start: pl.Expr, bounds: TimeBounds) -> pl.Expr:
        if not isinstance(self.early, Every):
            return pl.col(PREVIEW_AT)
        passed = pl.lit(bounds.clock, pl.Int64)
        if self.early.time == "event":
            passed = pl.max_horizontal(pl.lit(bounds.fire, pl.Int64), start)
        following = (passed // self.early.length + 1) * self.early.length
        waiting = pl.col(PREVIEW_AT).is_null() & (pl.col(UNSEEN) > 0)
        return pl.when(waiting).then(following).otherwise(pl.col(PREVIEW_AT))

    def shows(self, end: pl.Expr, bounds: TimeBounds) -> pl.Expr:
        """Whether a window that stays open is shown in this batch, if rows have come since it was shown last."""
        if self.early is None:
            return end > bounds.fire if self.kind == "on_update" else pl.lit(False)
        if isinstance(self.early, AfterRows):
            ready = pl.col(UNSEEN) >= self.early.rows
        else:
            by_clock = isinstance(self.early, Every) and self.early.time == "processing"
            ready = pl.col(PREVIEW_AT) <= (bounds.clock if by_clock else bounds.fire)
        return ((end > bounds.fire) & ready).fill_null(False)

    def due(self, closes: pl.Expr, dead_at: pl.Expr) -> Due:
        if not isinstance(self.early, Every):
            return Due(closes, dead_at=dead_at)
        if self.early.time == "processing":
            return Due(closes, pl.col(PREVIEW_AT), dead_at)
        return Due(pl.min_horizontal(closes, PREVIEW_AT), dead_at=dead_at)

    def __repr__(self) -> str:
        if self.kind == "early_only":
            return f"hr.early_only({self.early!r})"
        rules = {"early": self.early, "late": self.late}
        return f"hr.{self.kind}({', '.join(f'{name}={rule!r}' for name, rule in rules.items() if rule is not None)})"


ON_CLOSE = Emission("on_close")


@stable
def on_close(*, early: Every | AfterRows | None = None, late: AfterRows | None = None) -> Emission:
    """Emit a window once, when it closes; with ``early`` also previews before that.

    With ``late`` late rows correct it when so many have come, and when its time for corrections is over.

    >>> on_close(early=Every(10_000_000), late=AfterRows(100))
    hr.on_close(early=hr.every('10 seconds'), late=hr.after_rows(100))
    """
    if late is not None and not isinstance(late, AfterRows):
        raise DefinitionError(
            "EMISSION_UNKNOWN", f"late={late!r} is not a rule for corrections. Use hr.after_rows(100), or leave it out."
        )
    return Emission("on_close", None if early is None else preview_rule(early, "early="), late)


@stable
def early_only(rule: Trigger) -> Emission:
    """Emit only previews of a window, and nothing when it closes.

    >>> early_only(Every(10_000_000))
    hr.early_only(hr.every('10 seconds'))
    """
    return Emission("early_only", rule)


def preview_rule(rule: object, argument: str) -> Every | AfterRows:
    """A rule for previews of windows that close."""
    if not isinstance(rule, Every | AfterRows):
        raise DefinitionError(
            "EMISSION_UNKNOWN",
            f"{argument}{rule!r} is not a rule for previews. Use hr.every('10 seconds') or hr.after_rows(100).",
        )
    return rule


@stable
def on_update() -> Emission:
    """Emit a window after each batch that changed it, and when it closes even if unchanged.

    >>> on_update()
    hr.on_update()
    """
    return Emission("on_update")


@dataclass(frozen=True, slots=True)
class AccumulationMode:
    """How the results of one window relate: accumulating, discarding or retracting."""

    kind: Literal["accumulating", "discarding", "retracting"]

    def __repr__(self) -> str:
        return f"hr.{self.kind}()"


ACCUMULATING, DISCARDING = AccumulationMode("accumulating"), AccumulationMode("discarding")


@stable
def accumulating() -> AccumulationMode:
    """Each result covers all rows so far and replaces the one before.

    >>> accumulating()
    hr.accumulating()
    """
    return ACCUMULATING


@stable
def discarding() -> AccumulationMode:
    """Each result covers only the rows since the one before; readers add them up.

    >>> discarding()
    hr.discarding()
    """
    return DISCARDING


@stable
def retracting() -> AccumulationMode:
    """Each result retracts the one before (``change = update_before``), then covers all rows so far.

    >>> retracting()
    hr.retracting()
    """
    return AccumulationMode("retracting")
