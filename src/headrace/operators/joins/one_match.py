"""Of the right rows that belong to a left row only the first or the last; it is known when none can come any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from headrace.event_time.record import Edge
from headrace.event_time.strategy import BEGINNING
from headrace.operators.joins.meeting import Couples, Flags, Gathered, Outcome
from headrace.operators.joins.pairs import Places, ranges


@dataclass(frozen=True, slots=True)
class OneMatch:
    """Each left row meets one right row, the first or the last from ``low`` to ``high`` after it."""

    match: Literal["first", "last"]
    keeps_alone: bool
    """Whether a left row that meets none leaves too."""
    low: int
    high: int
    correctable: int

    def turning(self, rows: Gathered, edge: Edge) -> Flags:
        """Left rows whose time has come, and late right rows, which may take the place of others."""
        turning = self._firing(rows, edge)
        return turning | (rows.is_new & rows.is_right) if self.correctable else turning

    def outcome(self, rows: Gathered, edge: Edge) -> Outcome:
        """The choice of each left row whose time has come, and choices that late rows have changed."""
        over = rows.passed(max(edge.fire - self.correctable, BEGINNING))
        firing = np.flatnonzero(self._firing(rows, edge))
        given = Couples(firing, self._choices(rows, firing, rows.is_right))
        back = Couples.none()
        if self.correctable:
            told = rows.places(self._told(rows, edge))
            before = self._choices(rows, told, rows.is_right & ~rows.is_new)
            now = self._choices(rows, told, rows.is_right)
            changed = before != now
            back = Couples(told[changed], before[changed])
            given = Couples(np.r_[told[changed], firing], np.r_[now[changed], given.right])
        return Outcome(self._leaving(back), self._leaving(given), rows.matched, over)

    def _told(self, rows: Gathered, edge: Edge) -> Flags:
        return ~rows.is_right & ~rows.is_new & rows.passed(edge.before)

    def _firing(self, rows: Gathered, edge: Edge) -> Flags:
        return ~rows.is_right & rows.passed(edge.fire) & ~self._told(rows, edge)

    def _choices(self, rows: Gathered, lefts: Places, right: Flags) -> Places:
        """The right row of each left row, -1 where there is none."""
        rights = rows.places(right)
        choices = np.full_like(lefts, -1)
        keyed = rows.keys[lefts] >= 0
        if len(rights) and keyed.any():
            found = ranges(rows.side(lefts[keyed]), rows.side(rights), self.low, self.high)
            chosen = found.first() if self.match == "first" else found.last()
            choices[keyed] = np.where(chosen >= 0, rights[chosen], -1)
        return choices

    def _leaving(self, couples: Couples) -> Couples:
        if self.keeps_alone:
            return couples
        met = couples.right >= 0
        return Couples(couples.left[met], couples.right[met])
