"""Which rows of two sides belong together: the same key, and times that are so far apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class Side:
    """The rows of one side, each by the number of its key and its time."""

    keys: Places
    times: Places


@dataclass(frozen=True, slots=True)
class Ranges:
    """For each left row the right rows that belong to it: a range of places in an order of the right side."""

    order: Places
    """The right rows by key, then time, then arrival."""
    begin: Places
    end: Places

    @property
    def counts(self) -> Places:
        """How many right rows belong to each left row."""
        return self.end - self.begin

    def pairs(self) -> tuple[Places, Places]:
        """The places of left and right rows that belong together."""
        counts = self.counts
        left = np.repeat(np.arange(len(counts)), counts)
        behind = np.cumsum(counts) - counts
        within = np.arange(len(left)) - behind[left]
        return left, self.order[self.begin[left] + within]

    def first(self) -> Places:
        """The first right row of each left row, -1 where there is none."""
        return self._chosen(self.begin)

    def last(self) -> Places:
        """The last right row of each left row, -1 where there is none."""
        return self._chosen(self.end - 1)

    def _chosen(self, places: Places) -> Places:
        chosen = np.full(len(places), -1, dtype=np.int64)
        some = self.end > self.begin
        chosen[some] = self.order[places[some]]
        return chosen


def ranges(left: Side, right: Side, low: int, high: int) -> Ranges:
    """The right rows whose time is from ``low`` to ``high`` after that of a left row with the same key.

    >>> found = ranges(Side(np.array([0, 1]), np.array([5, 5])), Side(np.array([1, 0, 1]), np.array([6, 9, 4])), -1, 1)
    >>> [places.tolist() for places in found.pairs()]
    [[1, 1], [2, 0]]
    """
    if not len(left.keys) or not len(right.keys):
        nothing = np.zeros(len(left.keys), dtype=np.int64)
        return Ranges(np.arange(len(right.keys)), nothing, nothing)
    earliest, latest = int(right.times.min()), int(right.times.max())
    # Times that no right row reaches are all alike, so the sums below stay small.
    begin = np.clip(left.times, earliest - low, latest + 1 - low) + (low - earliest)
    end = np.clip(left.times, earliest - high - 1, latest - high) + (high + 1 - earliest)
    times, span = right.times - earliest, latest - earliest + 2
    if span * (1 + int(max(left.keys.max(), right.keys.max()))) > _LARGEST:
        # Very many keys over very long times: the ranks of the times take their place.
        known = np.unique(times)
        begin, end, times = (np.searchsorted(known, each) for each in (begin, end, times))
        span = len(known) + 1
    places = right.keys * span + times
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    # To look for places in their order is several times faster than to jump to and fro.
    walk = np.argsort(left.keys * span + begin)
    found = np.empty((2, len(walk)), dtype=np.int64)
    for number, bound in enumerate((begin, end)):
        found[number][walk] = np.searchsorted(ordered, (left.keys * span + bound)[walk])
    return Ranges(order, found[0], found[1])
