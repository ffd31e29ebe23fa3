"""Combined triggers at run time: where and when they fire along the rows of a key, as whole arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.expressions import RowExpression
from headrace.expressions.operands import Schema
from headrace.operators.windows.emission import UNSEEN
from headrace.operators.windows.triggers import (
    AfterRows,
    AllOf,
    AnyOf,
    Every,
    Once,
    Repeating,
    Then,
    Trigger,
    When,
    invalid_trigger,
    leaves,
)

Numbers = npt.NDArray[np.int64]
SINCE, MET = "__since", "__met"
"""Of a key: the time of its first row since it fired, and which conditions rows have met since, as bits."""
_NEVER = 2**62
_MOST_CONDITIONS = 32


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows to add, by lifetime and time; the first row of a lifetime may stand for what is known of its key."""

    lives: Numbers
    times: Numbers
    counts: Numbers
    """How many rows each is: of a known key those since it fired."""
    since: Numbers
    met: npt.NDArray[np.uint32]
    fired: Numbers
    """How often the key of the row has fired before."""
    ends: Numbers
    """When the lifetime ends, unless another row comes."""
    fire: int

    @property
    def last(self) -> Numbers:
        """The place of the last row of each row's lifetime."""
        return _last_of_run(self.lives[1:] != self.lives[:-1])

    @property
    def first(self) -> Numbers:
        """The places at which lifetimes begin."""
        return np.flatnonzero(np.r_[True, self.lives[1:] != self.lives[:-1]])


@dataclass(frozen=True, slots=True)
class Firings:
    """For each row where and when a trigger fires that begins with it.

    A place is twice the number of the last row that is part of it, and one more where time fires and not a row.
    """

    places: Numbers
    times: Numbers

    def _choose(self, other: Firings, ours: npt.NDArray[np.bool_]) -> Firings:
        return Firings(np.where(ours, self.places, other.places), np.where(ours, self.times, other.times))

    def first(self, other: Firings) -> Firings:
        """The earlier of both."""
        return self._choose(other, self._before(other))

    def last(self, other: Firings) -> Firings:
        """The later of both."""
        return other._choose(self, self._before(other))

    def _before(self, other: Firings) -> npt.NDArray[np.bool_]:
        earlier = (self.places == other.places) & (self.times <= other.times)
        before: npt.NDArray[np.bool_] = (self.places < other.places) | earlier
        return before


@dataclass(frozen=True, slots=True)
class TriggerProgram:
    """A combined trigger as stages: each fires once and gives way to the next; the last may fire again and again."""

    stages: tuple[Repeating, ...]
    repeats: bool
    conditions: tuple[RowExpression, ...]

    @classmethod
    def of(cls, trigger: Trigger) -> TriggerProgram:
        parts = trigger.triggers if isinstance(trigger, Then) else (trigger,)
        stages = tuple(each.trigger if isinstance(each, Once) else each for each in parts)
        found = dict.fromkeys(leaf.condition for leaf in leaves(trigger) if isinstance(leaf, When))
        if len(found) > _MOST_CONDITIONS:
            raise invalid_trigger(
                "when", tuple(found), f"a trigger has at most {_MOST_CONDITIONS} conditions. Join some by OR"
            )
        return cls(stages, not isinstance(parts[-1], Once), tuple(found))

    def met(self, schema: Schema) -> pl.Expr:
        """Which conditions a row meets."""
        bits = (
            pl.when(condition.truth(schema).fill_null(False)).then(pl.lit(1 << number, pl.UInt32)).otherwise(0)
            for number, condition in enumerate(self.conditions)
        )
        return reduce(lambda some, more: some | more, bits, pl.lit(0, pl.UInt32)).cast(pl.UInt32)

    def due(self, fired: pl.Expr) -> pl.Expr:
        """When a key fires without further rows, from its state row; null where it does not."""
        due = self._ready_at(self.stages[-1]) if self.repeats else pl.lit(None, pl.Int64)
        for number, stage in reversed(list(enumerate(self.stages))):
            if number + 1 < len(self.stages) or not self.repeats:
                due = pl.when(fired == number).then(self._ready_at(stage)).otherwise(due)
        return pl.when(pl.col(UNSEEN) > 0).then(due)

    def _ready_at(self, trigger: Repeating) -> pl.Expr:
        """When a trigger is ready without further rows; long ago where it is already."""
        ready, never = pl.lit(-_NEVER, pl.Int64), pl.lit(None, pl.Int64)
        match trigger:
            case AfterRows(rows):
                return pl.when(pl.col(UNSEEN) >= rows).then(ready).otherwise(never)
            case When(condition):
                bit = 1 << self.conditions.index(condition)
                return pl.when((pl.col(MET) & bit) > 0).then(ready).otherwise(never)
            case Every(length):
                return (pl.col(SINCE) // length + 1) * length
            case AnyOf(triggers):
                return pl.min_horizontal(self._ready_at(each) for each in triggers)
            case AllOf(triggers):
                times = [self._ready_at(each) for each in triggers]
                return pl.when(pl.all_horizontal(time.is_not_null() for time in times)).then(pl.max_horizontal(times))

    def fire(self, rows: Timeline) -> Firings:
        """Where each row is the last of a firing, and when; elsewhere the place is -1."""
        found = [self._next(stage, rows) for stage in self.stages]
        places, times = np.full((2, len(rows.lives)), -1, dtype=np.int64)

        def mark(firings: Firings, starts: Numbers) -> Numbers:
            """Record the firings of stages that begin here; returns which of them fire, and where the next begin."""
            ending = firings.places[starts] // 2
            places[ending], times[ending] = firings.places[starts], firings.times[starts]
            return ending + 1

        first, last = rows.first, rows.last
        # What is known of a key without rows since it fired begins with the next row.
        starts = first + (rows.counts[first] == 0)
        inside = starts <= last[first]
        starts, stages, ends = starts[inside], rows.fired[first][inside], last[first][inside]
        for number, firings in enumerate(found[: len(found) - self.repeats]):
            fires = (stages == number) & (starts <= ends)
            fires[fires] = firings.places[starts[fires]] < _NEVER
            starts[fires] = mark(firings, starts[fires])
            stages[fires] += 1
        if self.repeats:
            begin = starts[(stages >= len(found) - 1) & (starts <= ends)]
            reached = self._again_and_again(found[-1], begin, last)
            mark(found[-1], reached[found[-1].places[reached] < _NEVER])
        return Firings(places, times)

    def _again_and_again(self, firings: Firings, begin: Numbers, last: Numbers) -> Numbers:
        """The rows with which firings begin, in rounds: as many as the logarithm of the firings of a key."""
        beyond = len(last)
        following = np.where(firings.places < _NEVER, firings.places // 2 + 1, beyond)
        jump = np.r_[np.where(following <= last, following, beyond), beyond]
        reached = begin
        while len(more := jump[reached][jump[reached] < beyond]):
            reached = np.concatenate([reached, more])
            jump = jump[jump]
        return reached

    def _next(self, trigger: Repeating, rows: Timeline) -> Firings:
        """The firings of a trigger that begins with each of the rows."""
        numbers, last = np.arange(len(rows.lives)), rows.last
        match trigger:
            case AfterRows(count):
                total = np.cumsum(rows.counts)
                ending = np.searchsorted(total, total - rows.counts + count)
            case When(condition):
                meets = (rows.met & np.uint32(1 << self.conditions.index(condition))) > 0
                ending = np.minimum.accumulate(np.where(meets, numbers, len(numbers))[::-1])[::-1]
            case Every(length):
                return self._boundaries(length, rows)
            case AnyOf(triggers):
                return reduce(Firings.first, (self._next(each, rows) for each in triggers))
            case AllOf(triggers):
                return reduce(Firings.last, (self._next(each, rows) for each in triggers))
        known = ending <= last
        at = rows.times[np.where(known, ending, 0)] + 1
        return Firings(np.where(known, 2 * ending, _NEVER), np.where(known, at, _NEVER))

    def _boundaries(self, length: int, rows: Timeline) -> Firings:
        """The end of the interval that each row is in; long ago for what waits since an earlier one."""
        numbers, last, interval = np.arange(len(rows.lives)), rows.last, rows.times // length
        ending = _last_of_run((rows.lives[1:] != rows.lives[:-1]) | (interval[1:] != interval[:-1]))
        at = (interval + 1) * length
        passed = (ending < last) | ((at <= rows.fire) & (at < rows.ends[last]))
        is_past = rows.since // length < interval
        places = np.where(is_past, 2 * numbers, np.where(passed, 2 * ending + 1, _NEVER))
        return Firings(places, np.where(is_past, rows.times + 1, np.where(passed, at, _NEVER)))


def _last_of_run(changes: npt.NDArray[np.bool_]) -> Numbers:
    """The place of the last row of each row's run; a run ends where the next row is another."""
    ends = np.flatnonzero(np.r_[changes, True])
    return np.repeat(ends, np.diff(np.r_[-1, ends]))
