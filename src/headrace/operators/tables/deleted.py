"""How long a deleted row is remembered, so that a change from before its deletion does not bring it back."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.event_time.record import Edge
from headrace.event_time.strategy import BEGINNING
from headrace.operators.tables.changes import SETS, TIME
from headrace.wheel.operator import Due

WEEK = "1 week"


@dataclass(frozen=True, slots=True)
class Deleted:
    """Deleted keys stay known for ``kept`` microseconds of event time, or for ever."""

    kept: int | None

    def over(self, edge: Edge) -> pl.Expr:
        """Whether a row of state is a deleted key that has been known long enough."""
        passed = pl.lit(False) if self.kept is None else pl.col(TIME) <= max(edge.fire - self.kept, BEGINNING)
        return ~pl.col(SETS) & passed

    def due(self, state: pl.DataFrame) -> Due:
        """When the first deleted key is forgotten."""
        if self.kept is None:
            return Due()
        first = state.select(pl.col(TIME).filter(~pl.col(SETS)).min()).item()
        return Due(None if first is None else int(first) + self.kept)

    def __str__(self) -> str:
        if self.kept is None:
            return "the last position of each deleted key, for ever"
        return f"the last position of each deleted key, until event time is {spoken(self.kept)} behind its deletion"

    def most(self, *, tables: int, moving: bool = False) -> str:
        """How many rows a step holds at the most that keeps whole tables, as a formula and with numbers.

        Where rows may move to another place, the one that they have left is remembered as if they had been deleted.
        """
        rows, a_second = tables * 1_000_000, 1_000_000
        here = f"{rows:,} rows in the table" + "s" * (tables > 1)
        leaving = "deletions and moves" if moving else "deletions"
        if self.kept is None:
            return f"at most rows + {leaving}; with {here} and 1,000,000 {leaving} {rows + 1_000_000:,} rows"
        most = rows + 10 * self.kept // a_second
        return (
            f"at most rows + {leaving} a second x ({spoken(self.kept)} + lag), where lag is how far event time is "
            f"behind the newest change; with {here}, 10 {leaving}/s and no lag {most:,} rows"
        )

    @property
    def said(self) -> str:
        """As an author writes it behind the other arguments; nothing where it is the default."""
        if self == keep_for(WEEK):
            return ""
        return f", keep_deleted={None if self.kept is None else spoken(self.kept)!r}"


def keep_for(duration: Duration | None) -> Deleted:
    """What ``keep_deleted=`` says.

    >>> str(keep_for("1 week"))
    'the last position of each deleted key, until event time is 1 week behind its deletion'
    """
    return Deleted(None if duration is None else positive_microseconds(duration, argument="keep_deleted"))
