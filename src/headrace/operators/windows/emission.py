"""When a window's result is emitted: once at its close, after every change, or by triggers in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.expressions import RowExpression, parse_condition


@dataclass(frozen=True, slots=True)
class Every:
    """Fires at whole multiples of a duration, for windows that have changed since they fired last."""

    length: int
    time: Literal["processing", "event"] = "processing"

    def __repr__(self) -> str:
        time = "" if self.time == "processing" else f", time={self.time!r}"
        return f"hr.every({spoken(self.length)!r}{time})"


@dataclass(frozen=True, slots=True)
class AfterRows:
    """Fires when a window has taken so many rows since it fired last."""

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
    """An emission rule of windows that end."""

    kind: Literal["on_close", "on_update"]
    early: Every | AfterRows | None = None

    @property
    def previews(self) -> bool:
        """Whether results are emitted that a later one replaces, before the window closes."""
        return self.kind == "on_update" or self.early is not None

    def __repr__(self) -> str:
        return f"hr.{self.kind}({'' if self.early is None else f'early={self.early!r}'})"


ON_CLOSE = Emission("on_close")


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


def on_update() -> Emission:
    """Emit a window after each batch that changed it, and when it closes even if unchanged.

    >>> on_update()
    hr.on_update()
    """
    return Emission("on_update")


def every(duration: Duration, *, time: Literal["processing", "event"] = "processing") -> Every:
    """Every so often by the clock, on quiet streams too; with ``time="event"`` as often as event time passes it.

    >>> every("1 minute", time="event")
    hr.every('1 minute', time='event')
    """
    if time not in ("processing", "event"):
        raise DefinitionError("EVERY_TIME_UNKNOWN", f"time={time!r} is not known. Use 'processing' or 'event'.")
    return Every(positive_microseconds(duration, argument="every"), time)


def after_rows(rows: int) -> AfterRows:
    """After every so many rows.

    >>> after_rows(100)
    hr.after_rows(100)
    """
    if type(rows) is not int or rows < 1:
        raise DefinitionError(
            "AFTER_ROWS_NOT_POSITIVE", f"after_rows({rows!r}) would never fire. Give a whole number from 1 on."
        )
    return AfterRows(rows)


def when(condition: str) -> When:
    """At every row for which a condition over the row is true.

    >>> when("kind = 'checkout'")
    hr.when("kind = 'checkout'")
    """
    return When(parse_condition(condition))
