"""Which rows can matter to a pattern: found for all keys at once, before any is stepped through the automaton."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, combinations
from operator import or_

import numpy as np
import numpy.typing as npt

from headrace.operators.patterns.automaton import FINAL, START, TransitionTable, bits

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
MOST_STATES, MOST_ENTRIES = 100, 4_000
"""Of an automaton that is larger, or has more combinations of states, is only asked whether a match has begun."""
LEAST_TOGETHER = 16
"""Where fewer runs have rows left, these are not looked at together: they matter."""


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Finds the runs of rows during which a key has partial matches, and keeps those that something can come of.

    A row may do less than its own conditions allow, where a condition is also over the match, but never more.
    """

    table: TransitionTable
    asked: int
    """The conditions that are also over the match."""
    within: int | None
    ends_early: bool
    """Whether partial matches may also time out before their whole time is over."""
    _reached: dict[tuple[frozenset[int], int], tuple[frozenset[int], bool]] = field(default_factory=dict)

    def needed(self, first_of_key: Mask, time: Numbers, hits: Numbers, living: Mask) -> Mask:
        """Which rows must be stepped through, given the rows of each key in order, and which keys begin alive."""
        if len(hits) == 0:
            return np.zeros(0, np.bool_)
        alive, complete = self._followed(first_of_key, hits, living)
        # A run ends with the row after which nothing is alive, or with its key.
        first = np.flatnonzero(first_of_key | np.r_[False, ~alive[:-1]])
        last = np.r_[first[1:], len(hits)] - 1
        keep = np.logical_or.reduceat(complete, first) | alive[last]
        if self.ends_early:
            keep |= last > first
        elif self.within is not None:
            keep |= time[last] - time[first] >= self.within
        keep[np.searchsorted(first, np.flatnonzero(first_of_key))] |= living
        needed: Mask = np.repeat(keep, last - first + 1)
        # Of several rows in a row that meet no condition, the second changes nothing.
        empty = hits == 0
        needed[1:] &= first_of_key[1:] | ~(empty[1:] & empty[:-1])
        return needed

    def _followed(self, first_of_key: Mask, hits: Numbers, living: Mask) -> tuple[Mask, Mask]:
        """After each row whether a partial match may be alive, and whether one may be complete with it."""
        alive, complete = np.ones(len(hits), np.bool_), np.ones(len(hits), np.bool_)
        kinds, kind = np.unique(hits, return_inverse=True)
        after, completes = self._sets(kinds.tolist())
        ends_all = (after == 0).all(axis=0)
        begin = np.flatnonzero(first_of_key | np.r_[False, ends_all[kind[:-1]]])
        state = np.zeros(len(hits), np.int64)
        state[first_of_key] = living
        lengths = np.diff(np.r_[begin, len(hits)])
        begin = begin[np.argsort(-lengths, kind="stable")]
        state = state[begin]
        # The first rows of all runs together, then the second of those that have one, and so on.
        for place, left in enumerate((len(begin) - np.cumsum(np.bincount(lengths))[:-1]).tolist()):
            if left < LEAST_TOGETHER and place:
                break
            rows = begin[:left] + place
            complete[rows] = completes[state[:left], kind[rows]]
            state[:left] = after[state[:left], kind[rows]]
            alive[rows] = state[:left] > 0
        return alive, complete

    def _sets(self, kinds: list[int]) -> tuple[Numbers, Mask]:
        """By the states that may be alive and a row's conditions: those alive then, and whether a match is complete.

        The first of the sets is empty, the second has all states.
        """
        states = len(self.table.outcomes)
        found = [frozenset[int](), frozenset(range(1, states))]
        numbers = {each: number for number, each in enumerate(found)}
        after: list[list[int]] = []
        completes: list[list[bool]] = []
        for each in found:
            if states > MOST_STATES or len(found) * len(kinds) > MOST_ENTRIES:
                begins = [bool(hits & self.table.relevant[START]) for hits in kinds]
                return np.array([begins, [True] * len(kinds)], np.int64), np.array([begins, [True] * len(kinds)])
            reached = [self._after(each, hits) for hits in kinds]
            for new, _ in reached:
                if new not in numbers:
                    numbers[new] = len(found)
                    found.append(new)
            after.append([numbers[new] for new, _ in reached])
            completes.append([complete for _, complete in reached])
        return np.array(after), np.array(completes)

    def _after(self, states: frozenset[int], hits: int) -> tuple[frozenset[int], bool]:
        if (states, hits) not in self._reached:
            outcomes = [each for state in states for each in self._outcomes(state, hits)]
            if hits & self.table.relevant[START]:
                outcomes += self._outcomes(START, hits)
            alive = frozenset(target for target, _ in outcomes if target != FINAL)
            self._reached[states, hits] = alive, any(complete for _, complete in outcomes)
        return self._reached[states, hits]

    def _outcomes(self, state: int, hits: int) -> list[tuple[int, bool]]:
        """Where a partial match may go, and whether it may be complete, whichever of the asked conditions fail."""
        met = hits & self.table.relevant[state]
        asked = list(bits(met & self.asked))
        reached: list[tuple[int, bool]] = []
        for failed in chain.from_iterable(combinations(asked, number) for number in range(len(asked) + 1)):
            outcome = self.table.compute(state, met & ~reduce(or_, failed, 0))
            reached += [(state, False)] if outcome is None else [(target, complete) for _, target, complete in outcome]
        return reached
