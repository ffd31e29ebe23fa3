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
    """The rows of one side, each by the number of its key and its time."""

    keys: Int64Array
    times: Int64Array


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


def match_ranges(left: KeyedTimes, right: KeyedTimes, low: int, high: int) -> MatchRanges:
    """The right rows whose time is ``low`` to ``high`` after that of a left row with the same key.

    >>> left = KeyedTimes(np.array([0, 1]), np.array([5, 5]))
    >>> right = KeyedTimes(np.array([1, 0, 1]), np.array([6, 9, 4]))
    >>> [rows.tolist() for rows in match_ranges(left, right, -1, 1).pairs()]
    [[1, 1], [2, 0]]
    """
    if not len(left.keys) or not len(right.keys):
        empty = np.zeros(len(left.keys), dtype=np.int64)
        return MatchRanges(np.arange(len(right.keys)), empty, empty)
    earliest, latest = int(right.times.min()), int(right.times.max())
    # Bounds beyond all right times are clipped, so that the sums below stay small.
    begin = np.clip(left.times, earliest - low, latest + 1 - low) + (low - earliest)
    end = np.clip(left.times, earliest - high - 1, latest - high) + (high + 1 - earliest)
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

    def select(self, chosen: BoolArray) -> Int64Array:
        """The numbers of chosen rows whose key this batch concerns."""
        return np.flatnonzero(chosen & (self.keys >= 0))

    def match_ranges(self, left: Int64Array, right: Int64Array, low: int, high: int) -> MatchRanges:
        ours, theirs = (KeyedTimes(self.keys[rows], self.times[rows]) for rows in (left, right))
        return match_ranges(ours, theirs, low, high)

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
