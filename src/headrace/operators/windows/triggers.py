"""Triggers: when a window fires, simple ones and those made of others, with Beam's definitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.expressions import RowExpression, parse_row_expression
from headrace.stability import stable


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


SimpleTrigger = Every | AfterRows | When


@dataclass(frozen=True, slots=True)
class AllOf:
    """Fires when all have been ready since it fired last."""

    triggers: tuple[Repeating, ...]

    def __repr__(self) -> str:
        return f"hr.all_of({', '.join(map(repr, self.triggers))})"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Fires when one of them is ready; then all begin anew."""

    triggers: tuple[Repeating, ...]

    def __repr__(self) -> str:
        return f"hr.any_of({', '.join(map(repr, self.triggers))})"


@dataclass(frozen=True, slots=True)
class Once:
    """Fires as another trigger does, but only the first time."""

    trigger: Repeating

    def __repr__(self) -> str:
        return f"hr.once({self.trigger!r})"


@dataclass(frozen=True, slots=True)
class Then:
    """Fires as the first until that has ended, then as the next."""

    triggers: tuple[Repeating | Once, ...]

    def __repr__(self) -> str:
        return f"hr.then({', '.join(map(repr, self.triggers))})"


Repeating = SimpleTrigger | AllOf | AnyOf
Trigger = Repeating | Once | Then
_LEAVES, _REPEATING = (Every, AfterRows, When), (Every, AfterRows, When, AllOf, AnyOf)


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


@stable
def all_of(*triggers: Repeating) -> AllOf:
    """When all of the triggers have been ready since the last firing, again and again.

    >>> all_of(AfterRows(100), Every(60_000_000, "event"))
    hr.all_of(hr.after_rows(100), hr.every('1 minute', time='event'))
    """
    return AllOf(_several("all_of", triggers))


@stable
def any_of(*triggers: Repeating) -> AnyOf:
    """When the first of the triggers is ready, again and again; a firing lets all begin anew.

    >>> any_of(AfterRows(100), Every(60_000_000, "event"))
    hr.any_of(hr.after_rows(100), hr.every('1 minute', time='event'))
    """
    return AnyOf(_several("any_of", triggers))


@stable
def once(trigger: Repeating) -> Once:
    """As the trigger, but only the first time.

    >>> once(AfterRows(100))
    hr.once(hr.after_rows(100))
    """
    (only,) = _checked("once", (trigger,))
    return Once(only)


@stable
def then(*triggers: Repeating | Once) -> Then:
    """One trigger after the other: each but the last fires once, so it is ``hr.once(...)``.

    >>> then(once(AfterRows(1)), Every(3_600_000_000, "event"))
    hr.then(hr.once(hr.after_rows(1)), hr.every('1 hour', time='event'))
    """
    endless = [each for each in triggers[:-1] if not isinstance(each, Once)]
    if len(triggers) < 2 or endless:
        why = f"{endless[0]!r} never ends, so nothing would come after it" if endless else "it needs at least two"
        raise invalid_trigger("then", triggers, f"{why}. Write hr.then(hr.once(hr.after_rows(1)), hr.after_rows(100))")
    _checked("then", tuple(each.trigger if isinstance(each, Once) else each for each in triggers))
    return Then(triggers)


def _several(name: str, triggers: tuple[object, ...]) -> tuple[Repeating, ...]:
    if len(triggers) < 2:
        raise invalid_trigger(
            name, triggers, f"it needs at least two. Write hr.{name}(hr.after_rows(100), hr.when('urgent'))"
        )
    return _checked(name, triggers)


def _checked(name: str, triggers: tuple[object, ...]) -> tuple[Repeating, ...]:
    for each in triggers:
        if not isinstance(each, _REPEATING):
            takes = "hr.after_rows, hr.every, hr.when, hr.all_of and hr.any_of"
            raise invalid_trigger(
                name, triggers, f"{each!r} is not a trigger that fires again and again. It takes {takes}"
            )
    return cast(tuple[Repeating, ...], triggers)


def invalid_trigger(name: str, triggers: tuple[object, ...], why: str) -> DefinitionError:
    """The error of a combination that has no meaning."""
    return DefinitionError("TRIGGERS_INVALID", f"hr.{name}({', '.join(map(repr, triggers))}): {why}.")


def leaves(trigger: Trigger) -> tuple[SimpleTrigger, ...]:
    """The triggers that it is made of."""
    if isinstance(trigger, _LEAVES):
        return (trigger,)
    parts = (trigger.trigger,) if isinstance(trigger, Once) else trigger.triggers
    return tuple(leaf for part in parts for leaf in leaves(part))


def first_by_clock(triggers: Iterable[SimpleTrigger]) -> Every | None:
    """The first trigger of processing time."""
    return next((each for each in triggers if isinstance(each, Every) and each.time == "processing"), None)
