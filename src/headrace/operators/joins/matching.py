"""Which rows of two inputs match, computed over whole arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from headrace.event_time.record import Edge
from headrace.event_time.strategy import BEGINNING

Places = npt.NDArray[np.int64]
_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class KeyedTimes:
    """The rows of one side, each by the number of its key and its time."""

    keys: Places
    times: Places


@dataclass(frozen=True, slots=True)
class MatchRanges:
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


def match_ranges(left: KeyedTimes, right: KeyedTimes, low: int, high: int) -> MatchRanges:
    """The right rows whose time is from ``low`` to ``high`` after that of a left row with the same key.

    >>> left = KeyedTimes(np.array([0, 1]), np.array([5, 5]))
    >>> right = KeyedTimes(np.array([1, 0, 1]), np.array([6, 9, 4]))
    >>> found = match_ranges(left, right, -1, 1)
    >>> [places.tolist() for places in found.pairs()]
    [[1, 1], [2, 0]]
    """
    if not len(left.keys) or not len(right.keys):
        nothing = np.zeros(len(left.keys), dtype=np.int64)
        return MatchRanges(np.arange(len(right.keys)), nothing, nothing)
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
    return MatchRanges(order, found[0], found[1])


Flags = npt.NDArray[np.bool_]
NOWHERE: Places = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class CandidateRows:
    """All rows of both sides, those of earlier batches first, each side in the order of arrival."""

    times: Places
    is_right: Flags
    is_new: Flags
    matched: Flags
    """Whether a row has met one in an earlier batch, where that is kept."""
    last: Places
    """The last time at which a row may come that belongs to it."""
    alone: Flags
    """Whether it has no key, so that no row ever belongs to it."""
    keys: Places
    """The number of its key, -1 for keys of which this batch changes nothing."""

    def places(self, chosen: Flags) -> Places:
        """The places of some rows, without those whose key does not matter."""
        return np.flatnonzero(chosen & (self.keys >= 0))

    def side(self, places: Places) -> KeyedTimes:
        """Rows by key and time."""
        return KeyedTimes(self.keys[places], self.times[places])

    def passed(self, time: int) -> Flags:
        """Which rows nothing can come for any more when event time has reached ``time``."""
        return (self.last < time) | self.alone


@dataclass(frozen=True, slots=True)
class RowPairs:
    """Left and right rows by their places; -1 stands for no row."""

    left: Places
    right: Places

    def __getitem__(self, places: Places) -> RowPairs:
        return RowPairs(self.left[places], self.right[places])

    @classmethod
    def none(cls) -> RowPairs:
        """No couple."""
        return cls(NOWHERE, NOWHERE)

    @classmethod
    def of_left(cls, chosen: Flags) -> RowPairs:
        """Left rows without a right one."""
        places = np.flatnonzero(chosen)
        return cls(places, np.full_like(places, -1))

    @classmethod
    def of_right(cls, chosen: Flags) -> RowPairs:
        """Right rows without a left one."""
        places = np.flatnonzero(chosen)
        return cls(np.full_like(places, -1), places)


def concat_pairs(*couples: RowPairs) -> RowPairs:
    """Several after one another."""
    some = [each for each in couples if len(each.left)]
    if not some:
        return RowPairs.none()
    return RowPairs(np.concatenate([each.left for each in some]), np.concatenate([each.right for each in some]))


@dataclass(frozen=True, slots=True)
class MatchOutcome:
    """What a batch does: couples that are taken back, couples that are given, and what the state knows after it."""

    back: RowPairs
    given: RowPairs
    matched: Flags
    gone: Flags


class MatchStrategy(Protocol):
    """How rows of two sides meet."""

    def turning(self, rows: CandidateRows, edge: Edge) -> Flags:
        """The rows whose keys matter in this batch; ``rows.keys`` is not known yet."""

    def outcome(self, rows: CandidateRows, edge: Edge) -> MatchOutcome:
        """What becomes of the rows."""


How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class AllMatches:
    """Rows meet when the right one's time is from ``low`` to ``high`` after the left one's."""

    how: How
    low: int
    high: int
    correctable: int
    """How long rows are kept for late ones."""

    def turning(self, rows: CandidateRows, edge: Edge) -> Flags:
        """New rows."""
        return rows.is_new

    def outcome(self, rows: CandidateRows, edge: Edge) -> MatchOutcome:
        """RowPairs of which at least one row is new, and rows for which none has come in time."""
        met = self._met(rows)
        matched = rows.matched.copy()
        matched[met.left] = True
        matched[met.right] = True
        news = matched & ~rows.matched
        over = rows.passed(max(edge.fire - self.correctable, BEGINNING))
        # A row that left alone in an earlier batch, and is still here, may yet meet a late one.
        told = ~rows.is_new & ~rows.matched & rows.passed(edge.before)
        alone = rows.passed(edge.fire) & ~matched & ~told
        back, left = news & told, ~rows.is_right
        if self.how == "semi":
            return MatchOutcome(RowPairs.none(), RowPairs.of_left(news & left), rows.matched, over | (matched & left))
        if self.how == "anti":
            taken = RowPairs.of_left(back & left)
            return MatchOutcome(taken, RowPairs.of_left(alone & left), rows.matched, over | (matched & left))
        backs, gives, kept = [], [met], rows.matched
        if self.how in ("left", "full"):
            backs.append(RowPairs.of_left(back & left))
            gives.append(RowPairs.of_left(alone & left))
            kept = kept | (news & left)
        if self.how in ("right", "full"):
            backs.append(RowPairs.of_right(back & rows.is_right))
            gives.append(RowPairs.of_right(alone & rows.is_right))
            kept = kept | (news & rows.is_right)
        return MatchOutcome(concat_pairs(*backs), concat_pairs(*gives), kept, over)

    def _met(self, rows: CandidateRows) -> RowPairs:
        """New left rows with all right ones, and left rows of earlier batches with new right ones."""
        left = ~rows.is_right
        return concat_pairs(
            self._couples(rows, left & rows.is_new, rows.is_right),
            self._couples(rows, left & ~rows.is_new, rows.is_right & rows.is_new),
        )

    def _couples(self, rows: CandidateRows, left: Flags, right: Flags) -> RowPairs:
        lefts, rights = rows.places(left), rows.places(right)
        if not len(lefts) or not len(rights):
            return RowPairs.none()
        of_left, of_right = match_ranges(rows.side(lefts), rows.side(rights), self.low, self.high).pairs()
        return RowPairs(lefts[of_left], rights[of_right])


@dataclass(frozen=True, slots=True)
class SingleMatch:
    """Each left row meets one right row, the first or the last from ``low`` to ``high`` after it."""

    match: Literal["first", "last"]
    keeps_alone: bool
    """Whether a left row that meets none leaves too."""
    low: int
    high: int
    correctable: int

    def turning(self, rows: CandidateRows, edge: Edge) -> Flags:
        """Left rows whose time has come, and late right rows, which may take the place of others."""
        turning = self._firing(rows, edge)
        return turning | (rows.is_new & rows.is_right) if self.correctable else turning

    def outcome(self, rows: CandidateRows, edge: Edge) -> MatchOutcome:
        """The choice of each left row whose time has come, and choices that late rows have changed."""
        over = rows.passed(max(edge.fire - self.correctable, BEGINNING))
        firing = np.flatnonzero(self._firing(rows, edge))
        given = RowPairs(firing, self._choices(rows, firing, rows.is_right))
        back = RowPairs.none()
        if self.correctable:
            told = rows.places(self._told(rows, edge))
            before = self._choices(rows, told, rows.is_right & ~rows.is_new)
            now = self._choices(rows, told, rows.is_right)
            changed = before != now
            back = RowPairs(told[changed], before[changed])
            given = RowPairs(np.r_[told[changed], firing], np.r_[now[changed], given.right])
        return MatchOutcome(self._leaving(back), self._leaving(given), rows.matched, over)

    def _told(self, rows: CandidateRows, edge: Edge) -> Flags:
        return ~rows.is_right & ~rows.is_new & rows.passed(edge.before)

    def _firing(self, rows: CandidateRows, edge: Edge) -> Flags:
        return ~rows.is_right & rows.passed(edge.fire) & ~self._told(rows, edge)

    def _choices(self, rows: CandidateRows, lefts: Places, right: Flags) -> Places:
        """The right row of each left row, -1 where there is none."""
        rights = rows.places(right)
        choices = np.full_like(lefts, -1)
        keyed = rows.keys[lefts] >= 0
        if len(rights) and keyed.any():
            found = match_ranges(rows.side(lefts[keyed]), rows.side(rights), self.low, self.high)
            chosen = found.first() if self.match == "first" else found.last()
            choices[keyed] = np.where(chosen >= 0, rights[chosen], -1)
        return choices

    def _leaving(self, couples: RowPairs) -> RowPairs:
        if self.keeps_alone:
            return couples
        met = couples.right >= 0
        return RowPairs(couples.left[met], couples.right[met])
