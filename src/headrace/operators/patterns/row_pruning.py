"""Row pruning: which rows can matter to a match, computed on whole columns before any row is stepped through."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from headrace.operators.patterns.automaton import START, Automaton, TransitionTable

_Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowPruning:
    """Finds the rows that must be stepped through.

    A row before the first that could begin a match cannot matter to a key without partial matches. Where a row that
    meets no condition ends everything, the same holds behind each such row, and for a run of rows that is too short.
    """

    automaton: Automaton
    within: int | None
    shortest: int
    """The least number of rows in a match."""

    @cached_property
    def _table(self) -> TransitionTable:
        return TransitionTable(self.automaton)

    @cached_property
    def _fragile(self) -> bool:
        """Whether a row that meets no condition ends every partial match, as when all follows directly."""
        return all(self._table.compute(state, 0) == () for state in range(1, len(self.automaton.states)))

    def needed(self, key: _Numbers, time: _Numbers, hits: _Numbers, living: _Mask) -> _Mask:
        """Whether each row is needed, given rows by key in order, and which keys have partial matches."""
        if len(hits) == 0:
            return np.zeros(0, np.bool_)
        place = np.arange(len(hits))
        empty = hits == 0
        first_of_key = np.r_[True, key[1:] != key[:-1]]
        after_empty = np.r_[False, empty[:-1]] & ~first_of_key
        first_of_run = first_of_key | after_empty if self._fragile else first_of_key
        run_begin = np.maximum.accumulate(np.where(first_of_run, place, 0))
        begins = hits & self._table.relevant[START] != 0
        needed = np.maximum.accumulate(np.where(begins, place, -1)) >= run_begin
        if self._fragile and not self.automaton.limits:
            needed &= ~self._too_short(time, begins, empty, np.flatnonzero(first_of_run))
        needed |= living[key] & (run_begin == np.maximum.accumulate(np.where(first_of_key, place, 0)))
        # Of several rows in a row that meet no condition, the second changes nothing.
        needed &= ~(empty & after_empty)
        return needed

    def _too_short(self, time: _Numbers, begins: _Mask, empty: _Mask, runs: _Numbers) -> _Mask:
        """Rows of runs that end before a match could be complete, and before one could run out of time."""
        rows = len(time)
        last = np.r_[runs[1:], rows] - 1
        first = np.minimum.reduceat(np.where(begins, np.arange(rows), rows), runs)
        short = empty[last] & (last - first < self.shortest)
        if self.within is not None:
            short &= time[last] - time[np.minimum(first, rows - 1)] < self.within
        return np.repeat(short, last - runs + 1)
