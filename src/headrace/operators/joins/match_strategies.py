"""What an interval or window join emits: every match, or the first or the last one of each left row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from headrace.event_time.record import TimeBounds
from headrace.operators.joins.matching import BoolArray, CandidateRows, Int64Array, RowPairs, concatenated
from headrace.state.order_ranges import Span

JoinHow = Literal["inner", "left", "right", "full", "semi", "anti"]
SingleMatches = Literal["first", "last", "highest", "lowest"]
NO_PAIRS = RowPairs.alone(np.zeros(0, dtype=np.bool_))
FOREVER = 2**59
"""As a bound: without an end. Time is far from it, and sums of both do not overflow."""
_ANY_TIME = (-FOREVER, FOREVER)


@dataclass(frozen=True, slots=True)
class MatchOutcome:
    """What a batch does: pairs to retract and then to emit, and what the state knows of its rows afterwards."""

    pairs: RowPairs
    retracted: int
    """How many of the pairs, which come first, are retracted."""
    matched: BoolArray
    settled: BoolArray | None = None
    """Rows that are needed no longer, though their time is not over."""
    last_match: Int64Array | None = None
    """Until when each row is needed, where that changes."""


def _final_times(kept: int, bounds: TimeBounds) -> tuple[int, int]:
    """The times of rows that this batch makes final, when they can match for so long."""
    return (bounds.before - kept, bounds.fire - kept - 1) if kept < FOREVER else _ANY_TIME


def emits_unmatched(how: JoinHow) -> tuple[bool, bool]:
    """Whether a left and a right row without a match are emitted."""
    return how in ("left", "full", "anti"), how in ("right", "full")


@dataclass(frozen=True, slots=True)
class AllMatches:
    """Emits every pair whose right row is ``low`` to ``high`` after the left one, and unmatched rows once final."""

    how: JoinHow
    low: int
    high: int
    at_once: bool = False
    """Whether unmatched rows are emitted when they arrive, and retracted when a match comes."""

    @property
    def kept(self) -> tuple[int, int]:
        """How long after its time a left and a right row can match; negative when all matches came before."""
        return self.high, -self.low

    @property
    def waits(self) -> tuple[bool, bool]:
        """Whether something is emitted when no further match of a left and of a right row can come."""
        return (False, False) if self.at_once else emits_unmatched(self.how)

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
        pairs = rows.new_pairs
        matched = rows.matched.copy()
        matched[pairs.left] = True
        matched[pairs.right] = True
        newly_matched = matched & ~rows.matched
        # An earlier batch emitted these rows without a match; they stay buffered for late ones.
        emitted_alone = ~rows.is_new & ~rows.matched & (self.at_once | rows.final(bounds.before))
        unmatched = (self.at_once | rows.final(bounds.fire)) & ~matched & ~emitted_alone
        wrong = newly_matched & emitted_alone
        retracted, known, settled = NO_PAIRS, rows.matched, None
        if self.how in ("semi", "anti"):
            pairs = RowPairs.alone(newly_matched & left) if self.how == "semi" else NO_PAIRS
            settled = matched & left
        for emits, side, is_right in zip(emits_unmatched(self.how), (left, right), (False, True), strict=True):
            if emits:
                retracted = concatenated(retracted, RowPairs.alone(wrong & side, right=is_right))
                pairs = concatenated(pairs, RowPairs.alone(unmatched & side, right=is_right))
                known = known | (newly_matched & side)
        return MatchOutcome(concatenated(retracted, pairs), len(retracted), known, settled)


@dataclass(frozen=True, slots=True)
class SingleMatch:
    """Gives each left row one of the right rows from ``low`` to ``high`` after it, once that is final."""

    match: SingleMatches
    emits_unmatched: bool
    """Whether a left row without a match is emitted too."""
    low: int
    high: int
    corrects: bool
    """Whether late right rows replace the match of others."""

    @property
    def kept(self) -> tuple[int, int]:
        # A match is chosen when the last candidate may have come; all must be buffered until then. How long that is
        # after a right row, only the left rows know where each has its own end.
        return self.high, (max(self.high, 0) if self.high < FOREVER else 0) - self.low

    @property
    def waits(self) -> tuple[bool, bool]:
        return True, False

    def concerned(self, lefts: Int64Array, rights: Int64Array, bounds: TimeBounds) -> tuple[list[Span], list[Span]]:
        """The times of left rows whose match is chosen or may be another now, and of the right rows to choose from."""
        if self.high >= FOREVER:
            return [_ANY_TIME], [_ANY_TIME]
        first, last = _final_times(self.high, bounds)
        judged: list[Span] = [(first, last), (lefts, lefts)]
        if self.corrects:
            judged.append((rights - self.high, rights - self.low))
        return judged, [(first + self.low, last + self.high) for first, last in judged]

    def triggers(self, rows: CandidateRows, bounds: TimeBounds) -> BoolArray:
        firing = self._firing(rows, bounds)
        if self.high >= FOREVER:
            return firing | rows.is_new
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
        last_match = None
        if self.high >= FOREVER:
            pairs, last_match = rows.new_pairs, rows.last_match.copy()
            np.maximum.at(last_match, pairs.right, rows.last_match[pairs.left])
        return MatchOutcome(concatenated(retracted, emitted), len(retracted), rows.matched, last_match=last_match)

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
            ranges = rows.match_ranges(lefts[keyed], rights)
            if rows.ranks is not None:
                chosen = ranges.best(rows.ranks[rights])
            else:
                chosen = ranges.one("first" if self.match == "first" else "last")
            matches[keyed] = np.where(chosen >= 0, rights[chosen], -1)
        return matches

    def _visible(self, pairs: RowPairs) -> RowPairs:
        return pairs if self.emits_unmatched else pairs[np.flatnonzero(pairs.right >= 0)]
