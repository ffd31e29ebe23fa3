"""Which rows of two inputs match, over whole arrays of row numbers, and which of them the state keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.state.order_ranges import Span

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
JoinHow = Literal["inner", "left", "right", "full", "semi", "anti"]
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


NO_PAIRS = RowPairs.alone(np.zeros(0, dtype=np.bool_))


def _concatenated(*pairs: RowPairs) -> RowPairs:
    return RowPairs(np.concatenate([each.left for each in pairs]), np.concatenate([each.right for each in pairs]))


@dataclass(frozen=True, slots=True)
class MatchOutcome:
    """What a batch does: pairs to retract and then to emit, and what the state knows of its rows afterwards."""

    pairs: RowPairs
    retracted: int
    """How many of the pairs, which come first, are retracted."""
    matched: BoolArray
    settled: BoolArray | None = None
    """Rows that are needed no longer, though their time is not over."""


def _final_times(kept: int, bounds: TimeBounds) -> tuple[int, int]:
    """The times of rows that this batch makes final, when they can match for so long."""
    return bounds.before - kept, bounds.fire - kept - 1


def emits_unmatched(how: JoinHow) -> tuple[bool, bool]:
    """Whether a left and a right row without a match are emitted."""
    return how in ("left", "full", "anti"), how in ("right", "full")


@dataclass(frozen=True, slots=True)
class AllMatches:
    """Emits every pair whose right row is ``low`` to ``high`` after the left one, and unmatched rows once final."""

    how: JoinHow
    low: int
    high: int

    @property
    def kept(self) -> tuple[int, int]:
        """How long after its time a left and a right row can match; negative when all matches came before."""
        return self.high, -self.low

    @property
    def waits(self) -> tuple[bool, bool]:
        """Whether something is emitted when no further match of a left and of a right row can come."""
        return emits_unmatched(self.how)

    def concerned(self, lefts: Int64Array, rights: Int64Array, bounds: TimeBounds) -> tuple[list[Span], list[Span]]:
        """The times of buffered left and right rows that match new rows of these times, or waited and are final."""
        left, right = (
            [_final_times(kept, bounds)] if waits else [] for kept, waits in zip(self.kept, self.waits, strict=True)
        )
        return [*left, (rights - self.high, rights - self.low)], [*right, (lefts + self.low, lefts + self.high)]

    def triggers(self, rows: CandidateRows, bounds: TimeBounds) -> BoolArray:
        """The rows whose keys this batch concerns; ``rows.keys`` is not known yet."""
        return rows.is_new

    def outcome(self, rows: CandidateRows, bounds: TimeBounds) -> MatchOutcome:
        left, right = ~rows.is_right, rows.is_right
        pairs = _concatenated(
            self._pairs(rows, left & rows.is_new, right), self._pairs(rows, left & ~rows.is_new, right & rows.is_new)
        )
        matched = rows.matched.copy()
        matched[pairs.left] = True
        matched[pairs.right] = True
        newly_matched = matched & ~rows.matched
        # An earlier batch emitted these rows without a match; they stay buffered for late ones.
        emitted_alone = ~rows.is_new & ~rows.matched & rows.final(bounds.before)
        unmatched = rows.final(bounds.fire) & ~matched & ~emitted_alone
        wrong = newly_matched & emitted_alone
        retracted, known, settled = NO_PAIRS, rows.matched, None
        if self.how in ("semi", "anti"):
            pairs = RowPairs.alone(newly_matched & left) if self.how == "semi" else NO_PAIRS
            settled = matched & left
        for waits, side, is_right in zip(self.waits, (left, right), (False, True), strict=True):
            if waits:
                retracted = _concatenated(retracted, RowPairs.alone(wrong & side, right=is_right))
                pairs = _concatenated(pairs, RowPairs.alone(unmatched & side, right=is_right))
                known = known | (newly_matched & side)
        return MatchOutcome(_concatenated(retracted, pairs), len(retracted), known, settled)

    def _pairs(self, rows: CandidateRows, left: BoolArray, right: BoolArray) -> RowPairs:
        lefts, rights = rows.select(left), rows.select(right)
        of_left, of_right = rows.match_ranges(lefts, rights, self.low, self.high).pairs()
        return RowPairs(lefts[of_left], rights[of_right])


@dataclass(frozen=True, slots=True)
class SingleMatch:
    """Gives each left row the first or the last right row from ``low`` to ``high`` after it, once that is final."""

    match: Literal["first", "last"]
    emits_unmatched: bool
    """Whether a left row without a match is emitted too."""
    low: int
    high: int
    corrects: bool
    """Whether late right rows replace the match of others."""

    @property
    def kept(self) -> tuple[int, int]:
        # A match is chosen when the last candidate may have come; all must be buffered until then.
        return self.high, max(self.high, 0) - self.low

    @property
    def waits(self) -> tuple[bool, bool]:
        return True, False

    def concerned(self, lefts: Int64Array, rights: Int64Array, bounds: TimeBounds) -> tuple[list[Span], list[Span]]:
        """The times of left rows whose match is chosen or may be another now, and of the right rows to choose from."""
        first, last = _final_times(self.high, bounds)
        judged: list[Span] = [(first, last), (lefts, lefts)]
        if self.corrects:
            judged.append((rights - self.high, rights - self.low))
        return judged, [(first + self.low, last + self.high) for first, last in judged]

    def triggers(self, rows: CandidateRows, bounds: TimeBounds) -> BoolArray:
        firing = self._firing(rows, bounds)
        return firing | (rows.is_new & rows.is_right) if self.corrects else firing

    def outcome(self, rows: CandidateRows, bounds: TimeBounds) -> MatchOutcome:
        firing = np.flatnonzero(self._firing(rows, bounds))
        emitted, retracted = RowPairs(firing, self._matches(rows, firing, rows.is_right)), NO_PAIRS
        if self.corrects:
            fired = rows.select(self._fired(rows, bounds))
            before = self._matches(rows, fired, rows.is_right & ~rows.is_new)
            now = self._matches(rows, fired, rows.is_right)
            changed = before != now
            retracted = RowPairs(fired[changed], before[changed])
            emitted = RowPairs(np.r_[fired[changed], firing], np.r_[now[changed], emitted.right])
        retracted, emitted = self._visible(retracted), self._visible(emitted)
        return MatchOutcome(_concatenated(retracted, emitted), len(retracted), rows.matched)

    def _fired(self, rows: CandidateRows, bounds: TimeBounds) -> BoolArray:
        return ~rows.is_right & ~rows.is_new & rows.final(bounds.before)

    def _firing(self, rows: CandidateRows, bounds: TimeBounds) -> BoolArray:
        return ~rows.is_right & rows.final(bounds.fire) & ~self._fired(rows, bounds)

    def _matches(self, rows: CandidateRows, lefts: Int64Array, right: BoolArray) -> Int64Array:
        """The right row of each left row, -1 without one."""
        rights = rows.select(right)
        matches = np.full_like(lefts, -1)
        keyed = rows.keys[lefts] >= 0
        if len(rights) and keyed.any():
            chosen = rows.match_ranges(lefts[keyed], rights, self.low, self.high).one(self.match)
            matches[keyed] = np.where(chosen >= 0, rights[chosen], -1)
        return matches

    def _visible(self, pairs: RowPairs) -> RowPairs:
        return pairs if self.emits_unmatched else pairs[np.flatnonzero(pairs.right >= 0)]
