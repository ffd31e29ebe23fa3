"""Ranges of the order in which the rows of a key lie, for a step that needs few of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Orders = npt.NDArray[np.int64]
Span = tuple[Orders | int, Orders | int]
"""From one end to another, both included, or many of them; one that ends before it begins is empty."""
NO_SPAN = (0, -1)
MOST_RANGES = 8
"""Every key of a batch is searched for all ranges."""
_FURTHEST = 2**62


@dataclass(frozen=True, slots=True)
class OrderRanges:
    """Disjoint ranges, the lowest first, both ends included."""

    first: Orders
    last: Orders

    @classmethod
    def covering(cls, *spans: Span) -> OrderRanges:
        """The spans, each one range or arrays of them; where there are very many, with the smallest gaps between them.

        >>> ranges = OrderRanges.covering((np.array([7, 1]), np.array([9, 3])), (4, 5), (30, 20))
        >>> list(zip(ranges.first.tolist(), ranges.last.tolist()))
        [(1, 5), (7, 9)]
        """
        first, last = (np.concatenate([_orders(span[end]) for span in spans]) for end in (0, 1))
        given = np.flatnonzero(first <= last)
        given = given[np.argsort(first[given])]
        first, last = first[given], np.maximum.accumulate(last[given])
        gaps = first[1:] - last[:-1]
        widest = np.sort(np.argsort(-gaps, kind="stable")[: MOST_RANGES - 1])
        apart = widest[gaps[widest] > 1]
        begins, ends = np.r_[0, apart + 1][: len(first)], np.r_[apart, len(first) - 1][: len(first)]
        return cls(first[begins], last[ends])

    def cover(self, first: int, last: int) -> bool:
        """Whether one of the ranges holds everything between two orders."""
        return bool(((self.first <= first) & (self.last >= last)).any())


def _orders(end: Orders | int) -> Orders:
    return np.array([min(max(end, -_FURTHEST), _FURTHEST)]) if isinstance(end, int) else end
