"""Every couple leaves as soon as both rows are there; rows that meet none leave when none can come any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.event_time.record import Edge
from headrace.event_time.strategy import BEGINNING
from headrace.operators.joins.meeting import Couples, Flags, Gathered, Outcome, together
from headrace.operators.joins.pairs import ranges

How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class EveryMatch:
    """Rows meet when the right one's time is from ``low`` to ``high`` after the left one's."""

    how: How
    low: int
    high: int
    correctable: int
    """How long rows are kept for late ones."""

    def turning(self, rows: Gathered, edge: Edge) -> Flags:
        """New rows."""
        return rows.is_new

    def outcome(self, rows: Gathered, edge: Edge) -> Outcome:
        """Couples of which at least one row is new, and rows for which none has come in time."""
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
            return Outcome(Couples.none(), Couples.of_left(news & left), rows.matched, over | (matched & left))
        if self.how == "anti":
            taken = Couples.of_left(back & left)
            return Outcome(taken, Couples.of_left(alone & left), rows.matched, over | (matched & left))
        backs, gives, kept = [], [met], rows.matched
        if self.how in ("left", "full"):
            backs.append(Couples.of_left(back & left))
            gives.append(Couples.of_left(alone & left))
            kept = kept | (news & left)
        if self.how in ("right", "full"):
            backs.append(Couples.of_right(back & rows.is_right))
            gives.append(Couples.of_right(alone & rows.is_right))
            kept = kept | (news & rows.is_right)
        return Outcome(together(*backs), together(*gives), kept, over)

    def _met(self, rows: Gathered) -> Couples:
        """New left rows with all right ones, and left rows of earlier batches with new right ones."""
        left = ~rows.is_right
        return together(
            self._couples(rows, left & rows.is_new, rows.is_right),
            self._couples(rows, left & ~rows.is_new, rows.is_right & rows.is_new),
        )

    def _couples(self, rows: Gathered, left: Flags, right: Flags) -> Couples:
        lefts, rights = rows.places(left), rows.places(right)
        if not len(lefts) or not len(rights):
            return Couples.none()
        of_left, of_right = ranges(rows.side(lefts), rows.side(rights), self.low, self.high).pairs()
        return Couples(lefts[of_left], rights[of_right])
