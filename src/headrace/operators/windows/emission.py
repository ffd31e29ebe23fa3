"""When a window is emitted (emission and triggers), and how its results relate (accumulation mode)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.expressions import RowExpression, parse_row_expression
from headrace.stability import stable
from headrace.wheel.operator import Due

UNSEEN, PREVIEW_AT = "__unseen", "__preview_at"
"""How many rows no result has shown yet, and when they will be shown."""


@dataclass(frozen=True, slots=True)
class Every:
    """Fires at whole multiples of a duration since 1970-01-01 UTC, for windows that have changed since they fired."""

    length: int
    time: Literal["processing", "event"] = "processing"

    def __repr__(self) -> str:
        time = "" if self.time == "processing" else f", time={self.time!r}"
        return f"hr.every({spoken(self.length)!r}{time})"


@dataclass(frozen=True, slots=True)
class AfterRows:
    """Fires when a window has got this many rows since it fired last."""

    rows: int

    def __repr__(self) -> str:
        return f"hr.after_rows({self.rows})"


@dataclass(frozen=True, slots=True)
class When:
    """Fires at a row for which a condition is true; the row is part of what is emitted."""

    condition: RowExpression

    def __repr__(self) -> str:
        return f"hr.when({self.condition.text!r})"


Trigger = Every | AfterRows | When


@dataclass(frozen=True, slots=True)
class Emission:
    """When a window that closes is emitted."""

    kind: Literal["on_close", "on_update", "previews"]
    early: Every | AfterRows | None = None

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
            ready = pl.col(PREVIEW_AT) <= (bounds.clock if self.early.time == "processing" else bounds.fire)
        return ((end > bounds.fire) & ready).fill_null(False)

    def due(self, closes: pl.Expr, dead_at: pl.Expr) -> Due:
        if not isinstance(self.early, Every):
            return Due(closes, dead_at=dead_at)
        if self.early.time == "processing":
            return Due(closes, pl.col(PREVIEW_AT), dead_at)
        return Due(pl.min_horizontal(closes, PREVIEW_AT), dead_at=dead_at)

    def __repr__(self) -> str:
        early = "" if self.early is None else repr(self.early)
        return f"hr.{self.kind}({f'early={early}' if early and self.kind == 'on_close' else early})"


ON_CLOSE = Emission("on_close")


@stable
def on_close(*, early: Every | AfterRows | None = None) -> Emission:
    """Emit a window once, when it closes; with ``early`` also previews before that.

    >>> on_close(early=every("10 seconds"))
    hr.on_close(early=hr.every('10 seconds'))
    """
    if early is not None and not isinstance(early, Every | AfterRows):
        raise DefinitionError(
            "EMISSION_UNKNOWN",
            f"early={early!r} is not a rule for previews. Use hr.every('10 seconds') or hr.after_rows(100).",
        )
    return Emission("on_close", early)


@stable
def on_update() -> Emission:
    """Emit a window after each batch that changed it, and when it closes even if unchanged.

    >>> on_update()
    hr.on_update()
    """
    return Emission("on_update")


@stable
def every(duration: Duration, *, time: Literal["processing", "event"] = "processing") -> Every:
    """At regular intervals of processing time, on quiet streams too; with ``time="event"`` of event time.

    >>> every("1 minute", time="event")
    hr.every('1 minute', time='event')
    """
    if time not in ("processing", "event"):
        raise DefinitionError("EVERY_TIME_UNKNOWN", f"time={time!r} is not known. Use 'processing' or 'event'.")
    return Every(positive_microseconds(duration, argument="every"), time)


@stable
def after_rows(rows: int) -> AfterRows:
    """After this many rows, again and again.

    >>> after_rows(100)
    hr.after_rows(100)
    """
    if type(rows) is not int or rows < 1:
        raise DefinitionError(
            "AFTER_ROWS_NOT_POSITIVE", f"after_rows({rows!r}) would never fire. Give a whole number of at least 1."
        )
    return AfterRows(rows)


@stable
def when(condition: str) -> When:
    """At every row for which a condition is true.

    >>> when("kind = 'checkout'")
    hr.when("kind = 'checkout'")
    """
    return When(parse_row_expression(condition))


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
