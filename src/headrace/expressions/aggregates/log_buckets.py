"""Counts in buckets whose width is a fixed share of their values, over whole columns of sketches.

The buckets are numbered in the order of their values: below zero negative, zero 0, above zero positive. A sketch is a
list of numbers with counts in rising order. It depends on the values alone, so sketches merge exactly, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log
from sys import float_info

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.expressions.aggregates.lists import Integers, Lists

Floats = npt.NDArray[np.float64]

ENTRY = pl.Struct({"bucket": pl.Int32(), "count": pl.Int64()})
# The buckets that are kept apart reach from the largest size down to a 10**19th of it: for integers, to 1.
_REACH = 19 * log(10)


@dataclass(frozen=True, slots=True)
class LogBuckets:
    """Sketches in which a value differs from the one that stands for its bucket by at most the share ``error``.

    >>> buckets = LogBuckets(0.01)
    >>> buckets.at(0.5, buckets.sketch(pl.Series([[40.0, 41.0, 42.0, 43.0]]))).round(3).to_list()
    [41.323]
    """

    error: float

    def sketch(self, groups: pl.Series) -> pl.Series:
        """The sketches of lists of doubles."""
        lists = Lists.of(groups)
        numbers = self._numbers(lists.elements.to_numpy())
        return self._written(lists.owners, numbers, np.ones(len(numbers), dtype=np.int64), len(groups))

    def merge(self, groups: pl.Series) -> pl.Series:
        """The sketches of lists in which several sketches stand one after the other."""
        lists = Lists.of(groups)
        return self._written(lists.owners, *_entries(lists), len(groups))

    def at(self, share: float, sketches: pl.Series) -> pl.Series:
        """The value at a share of each sketch's values; minus infinity for the first value, NaN for the last."""
        lists = Lists.of(sketches)
        numbers, counts = _entries(lists)
        reached, ends = np.cumsum(np.append(0, counts)), np.cumsum(lists.lengths)
        before = reached[ends - lists.lengths]
        total = reached[ends] - before
        rank = np.maximum(np.ceil(total * share), 1).astype(np.int64)
        place = np.searchsorted(reached, before + rank) - 1
        # A sketch of nothing has no place of its own; what is found for it is not used.
        values = self._values(np.append(numbers, 0)[place])
        values = np.where(rank == 1, -np.inf, np.where(rank == total, np.nan, values))
        return pl.Series(values).set(pl.Series(total == 0), None)

    @property
    def _width(self) -> float:
        """The logarithm of the ratio of a bucket's ends: from its middle to each it is that of ``1 + error``."""
        return 2 * log(1 + self.error)

    @property
    def _below(self) -> int:
        """The power of the bucket before that of the least double with all its digits; the bucket of 1.0 has 0."""
        return floor(log(float_info.min) / self._width) - 1

    @property
    def _infinity(self) -> int:
        """The bucket of infinity; the next is that of NaN."""
        return ceil(log(float_info.max) / self._width) - self._below + 1

    def _numbers(self, values: Floats) -> Integers:
        """The bucket of each value; what is nearer to zero than 2.3e-308 is in that of zero."""
        size = np.abs(values)
        counted = (size >= float_info.min) & np.isfinite(size)
        power = np.rint(np.log(np.where(counted, size, 1.0)) / self._width).astype(np.int64)
        number = np.where(counted, power - self._below, np.where(np.isinf(size), self._infinity, 0))
        return np.where(np.isnan(values), self._infinity + 1, np.where(values < 0, -number, number))

    def _values(self, numbers: Integers) -> Floats:
        """The value in the middle of each bucket."""
        size = np.abs(numbers)
        value = np.exp(np.minimum((size + self._below) * self._width, log(float_info.max)))
        value = np.where(size == 0, 0.0, np.where(size == self._infinity, np.inf, value))
        return np.where(size > self._infinity, np.nan, np.copysign(value, numbers))

    def _written(self, owners: Integers, numbers: Integers, counts: Integers, sketches: int) -> pl.Series:
        """Sketches of entries: those of one bucket are added, and far too small ones count as zero."""
        size = np.abs(numbers)
        largest = np.zeros(sketches, dtype=np.int64)
        np.maximum.at(largest, owners, np.where(size < self._infinity, size, 0))
        numbers = np.where(size < largest[owners] - ceil(_REACH / self._width) - 1, 0, numbers)
        place = (owners << 32) + numbers
        order = np.argsort(place, kind="stable")
        place = place[order]
        starts = np.flatnonzero(np.append(True, place[1:] != place[:-1])[: len(place)])
        added = np.add.reduceat(counts[order], starts) if len(starts) else counts
        kept = order[starts]
        entries = pl.DataFrame(
            {"bucket": numbers[kept], "count": added}, schema={"bucket": pl.Int32, "count": pl.Int64}
        )
        return Lists(entries.to_struct(), np.bincount(owners[kept], minlength=sketches)).series()


def _entries(lists: Lists) -> tuple[Integers, Integers]:
    fields = lists.elements.struct
    return fields.field("bucket").to_numpy().astype(np.int64), fields.field("count").to_numpy()
