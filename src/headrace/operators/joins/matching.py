"""Which rows of two inputs are near each other, over whole arrays of row numbers, and which of them the state keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_LARGEST, _MANY = 2**62, 1_000


@dataclass(frozen=True, slots=True)
class KeyedTimes:
    """The right rows, each by the number of its key and its time."""

    keys: Int64Array
    times: Int64Array


@dataclass(frozen=True, slots=True)
class KeyedSpans:
    """The left rows, each by the number of its key and the times from ``first`` to ``last`` at which it matches."""

    keys: Int64Array
    first: Int64Array
    last: Int64Array


@dataclass(frozen=True, slots=True)
class MatchRanges:
    """For each left row the range of matching right rows, in a sorted order of the right side."""

    order: Int64Array
    """The right rows by key, then time, then arrival."""
    begin: Int64Array
    end: Int64Array

    def pairs(self) -> tuple[Int64Array, Int64Array]:
        counts = self.end - self.begin
        left = np.repeat(np.arange(len(counts)), counts)
        offsets = np.cumsum(counts) - counts
        within = np.arange(len(left)) - offsets[left]
        return left, self.order[self.begin[left] + within]

    def one(self, which: Literal["first", "last"]) -> Int64Array:
        """The first or last matching right row of each left row, -1 without one."""
        places = self.begin if which == "first" else self.end - 1
        rows = np.full(len(places), -1, dtype=np.int64)
        some = self.end > self.begin
        rows[some] = self.order[places[some]]
        return rows

    def best(self, ranks: Int64Array) -> Int64Array:
        """The matching right row of the highest rank for each left row, -1 without one."""
        rows = np.full(len(self.begin), -1, dtype=np.int64)
        counts, length, best = self.end - self.begin, 1, self.order
        while len(best) and (counts >= length).any():
            # ``best`` has of each place the best of so many rows; two such stretches cover up to twice as many.
            here = np.flatnonzero((counts >= length) & (counts < 2 * length))
            rows[here] = _better(best[self.begin[here]], best[self.end[here] - length], ranks)
            best, length = _better(best[:-length], best[length:], ranks), 2 * length
        return rows


def _better(some: Int64Array, others: Int64Array, ranks: Int64Array) -> Int64Array:
    return np.where(ranks[some] >= ranks[others], some, others)


def match_ranges(left: KeyedSpans, right: KeyedTimes) -> MatchRanges:
    """The right rows with the key of a left row whose time is in its span.

    >>> left = KeyedSpans(np.array([0, 1]), np.array([4, 4]), np.array([6, 6]))
    >>> right = KeyedTimes(np.array([1, 0, 1]), np.array([6, 9, 4]))
    >>> [rows.tolist() for rows in match_ranges(left, right).pairs()]
    [[1, 1], [2, 0]]
    """
    if not len(left.keys) or not len(right.keys):
        empty = np.zeros(len(left.keys), dtype=np.int64)
        return MatchRanges(np.arange(len(right.keys)), empty, empty)
    earliest, latest = int(right.times.min()), int(right.times.max())
    # Bounds beyond all right times are clipped, so that the sums below stay small.
    begin = np.clip(left.first, earliest, latest + 1) - earliest
    end = np.maximum(begin, np.clip(left.last, earliest - 1, latest) + (1 - earliest))
    times, span = right.times - earliest, latest - earliest + 2
    if span * (1 + int(max(left.keys.max(), right.keys.max()))) > _LARGEST:
        # Very many keys over a very long time would overflow: use the ranks of the times instead.
        known = np.unique(times)
        begin, end, times = (np.searchsorted(known, each) for each in (begin, end, times))
        span = len(known) + 1
    sort_keys = right.keys * span + times
    order = np.argsort(sort_keys, kind="stable")
    ordered = sort_keys[order]
    # Searching in sorted order is several times faster than random access.
    walk = np.argsort(left.keys * span + begin)
    found = np.empty((2, len(walk)), dtype=np.int64)
    for number, bound in enumerate((begin, end)):
        found[number][walk] = np.searchsorted(ordered, (left.keys * span + bound)[walk])
    return MatchRanges(order, found[0], found[1])


def retained(
    rows: pl.DataFrame,
    *,
    known: int,
    identity: Sequence[str],
    expired: BoolArray,
    altered: BoolArray | None = None,
    settled: BoolArray | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The new and altered rows that are kept, and the identities of known rows that are settled before they expire."""
    kept = ~expired if settled is None else ~(expired | settled)
    upserts = _chosen(rows[known:], kept[known:])
    if altered is not None and (revised := altered[:known] & kept[:known]).any():
        upserts = pl.concat([_chosen(rows[:known], revised), upserts])
    removed = np.zeros(known, dtype=np.bool_) if settled is None else (settled & ~expired)[:known]
    return upserts, _chosen(rows.select(identity)[:known], removed)


def _chosen(rows: pl.DataFrame, chosen: BoolArray) -> pl.DataFrame:
    if chosen.all():
        return rows
    numbers = np.flatnonzero(chosen)
    # Taking few rows is faster than a query that filters; taking many out of several chunks is ten times slower.
    return rows[numbers] if len(numbers) < _MANY or rows.n_chunks() == 1 else rows.filter(chosen)


@dataclass(frozen=True, slots=True)
class CandidateRows:
    """All rows of both sides in a slot: buffered rows first, then new ones, each in the order of arrival."""

    times: Int64Array
    first: Int64Array
    """Of a left row the earliest time at which a right row matches it."""
    last: Int64Array
    """Of a left row the latest such time."""
    is_right: BoolArray
    is_new: BoolArray
    matched: BoolArray
    """Whether a row matched in an earlier batch, where the state keeps that."""
    last_match: Int64Array
    """The latest time at which a match of the row can come."""
    without_key: BoolArray
    """Whether a part of the key is null, so that the row never matches."""
    keys: Int64Array
    """The number of the row's key, -1 for keys that this batch does not concern."""
    ranks: Int64Array | None = None
    """How right rows rank, where each left row gets the best one."""

    def select(self, chosen: BoolArray) -> Int64Array:
        """The numbers of chosen rows whose key this batch concerns."""
        return np.flatnonzero(chosen & (self.keys >= 0))

    def match_ranges(self, left: Int64Array, right: Int64Array) -> MatchRanges:
        spans = KeyedSpans(self.keys[left], self.first[left], self.last[left])
        return match_ranges(spans, KeyedTimes(self.keys[right], self.times[right]))

    def pairs(self, left: BoolArray, right: BoolArray) -> RowPairs:
        """Every matching pair of some left and right rows."""
        lefts, rights = self.select(left), self.select(right)
        of_left, of_right = self.match_ranges(lefts, rights).pairs()
        return RowPairs(lefts[of_left], rights[of_right])

    @property
    def new_pairs(self) -> RowPairs:
        """Every matching pair with a new row."""
        left, right = ~self.is_right, self.is_right
        return concatenated(self.pairs(left & self.is_new, right), self.pairs(left & ~self.is_new, right & self.is_new))

    def final(self, time: int) -> BoolArray:
        """Which rows can get no further match once event time has reached ``time``."""
        return (self.last_match < time) | self.without_key


@dataclass(frozen=True, slots=True)
class RowPairs:
    """Pairs of a left and a right row by their numbers; -1 stands for no row."""

    left: Int64Array
    right: Int64Array

    def __len__(self) -> int:
        return len(self.left)

    def __getitem__(self, chosen: Int64Array) -> RowPairs:
        return RowPairs(self.left[chosen], self.right[chosen])

    @property
    def either(self) -> Int64Array:
        return np.where(self.left < 0, self.right, self.left)

    @classmethod
    def alone(cls, chosen: BoolArray, *, right: bool = False) -> RowPairs:
        rows = np.flatnonzero(chosen)
        no_rows = np.full_like(rows, -1)
        return cls(no_rows, rows) if right else cls(rows, no_rows)


def concatenated(*pairs: RowPairs) -> RowPairs:
    """All pairs, in order."""
    return RowPairs(np.concatenate([each.left for each in pairs]), np.concatenate([each.right for each in pairs]))
