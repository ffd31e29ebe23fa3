"""Which rows can matter to a match, told of whole columns before any row is looked at."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.operators.patterns.bound import BoundPattern

TIME, HITS = "__time", "__hits"
"""A row's time, and the conditions it meets by itself."""

_Mask = npt.NDArray[np.bool_]
_Places = npt.NDArray[np.int64]


def useful_rows(pattern: BoundPattern, number: _Places, time: _Places, hits: _Places, living: _Mask) -> _Mask:
    """Whether each row must be stepped through, given rows by key in order, and which keys have partial matches.

    A row before the first that could begin a match is of no use to a key without partial matches. Where a row that
    meets no condition ends everything, the same holds behind each such row, and a run that is too short is of no use.
    """
    if len(hits) == 0:
        return np.zeros(0, np.bool_)
    place = np.arange(len(hits))
    empty = hits == 0
    first_of_key = np.r_[True, number[1:] != number[:-1]]
    after_empty = np.r_[False, empty[:-1]] & ~first_of_key
    first_of_run = first_of_key | after_empty if pattern.fragile else first_of_key
    run_begin = np.maximum.accumulate(np.where(first_of_run, place, 0))
    begins = hits & pattern.starting != 0
    useful = np.maximum.accumulate(np.where(begins, place, -1)) >= run_begin
    continued = living[number] & (run_begin == np.maximum.accumulate(np.where(first_of_key, place, 0)))
    if pattern.fragile and not pattern.automaton.limits:
        useful &= ~_too_short(pattern, time, begins, empty, np.flatnonzero(first_of_run))
    # Of several rows in a row that meet no condition, the second changes nothing.
    useful |= continued
    useful &= ~(empty & after_empty)
    return useful


def _too_short(pattern: BoundPattern, time: _Places, begins: _Mask, empty: _Mask, runs: _Places) -> _Mask:
    """Rows of runs that end before a match could be complete, and before one could run out of time."""
    rows = len(time)
    last = np.r_[runs[1:], rows] - 1
    first = np.minimum.reduceat(np.where(begins, np.arange(rows), rows), runs)
    begun = np.minimum(first, rows - 1)
    short = empty[last] & (last - first < pattern.shortest)
    if pattern.definition.within is not None:
        short &= time[last] - time[begun] < pattern.definition.within
    return np.repeat(short, last - runs + 1)
