"""Sessions in plain Python, slow and obviously right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.models.rows import Event

Place = tuple[str | None, int, int]
Answer = dict[Place, tuple[Any, ...]]
Rows = list[Event]


def sessions(rows: Iterable[Event], gap: int, max_length: int | None = None) -> list[Rows]:
    """Rows of one key in sessions: each row in the order of time joins the last session or begins another."""
    found: list[Rows] = []
    for row in sorted(rows, key=lambda row: row.time):
        joins = bool(found) and row.time - found[-1][-1].time < gap
        if joins and (max_length is None or row.time - found[-1][0].time < max_length):
            found[-1].append(row)
        else:
            found.append([row])
    return found


def end_of(session: Rows, gap: int, max_length: int | None = None) -> int:
    """A gap behind the last row, or the greatest length behind the first."""
    silent = max(row.time for row in session) + gap
    return silent if max_length is None else min(silent, min(row.time for row in session) + max_length)


def values(session: Rows) -> tuple[Any, ...]:
    """Rows, known amounts, their sum, least and most."""
    known = [row.amount for row in session if row.amount is not None]
    least, most = (min(known), max(known)) if known else (None, None)
    return (len(session), len(known), sum(known) if known else None, least, most)


def answer(events: Iterable[Event], gap: int, max_length: int | None = None, *, keyed: bool = True) -> Answer:
    """The values of every session."""
    by_key: defaultdict[str | None, Rows] = defaultdict(list)
    for event in events:
        by_key[event.account if keyed else None].append(event)
    return {
        (key, session[0].time, end_of(session, gap, max_length)): values(session)
        for key, rows in by_key.items()
        for session in sessions(rows, gap, max_length)
    }


@dataclass
class Watched:
    """Sessions of one key as a watermark passes them: what is over, what takes rows, which rows came too late."""

    gap: int
    correctable: int = 0
    over: list[Rows] = field(default_factory=list)
    known: list[Rows] = field(default_factory=list)
    late: Rows = field(default_factory=list)

    def batch(self, watermark: int, rows: Rows) -> None:
        """A batch: what is over leaves before its rows come; then whatever touches becomes one."""
        self.over += [session for session in self.known if self._is_over(session, watermark)]
        self.known = [session for session in self.known if not self._is_over(session, watermark)]
        self.known += [[row] for row in rows]
        while self._join_two():
            pass
        self.late += [row for session in self.known if self._is_over(session, watermark) for row in session]
        self.known = [session for session in self.known if not self._is_over(session, watermark)]

    def _is_over(self, session: Rows, watermark: int) -> bool:
        return end_of(session, self.gap) + self.correctable <= watermark

    def _join_two(self) -> bool:
        for one in self.known:
            for other in self.known:
                if one is not other and any(abs(a.time - b.time) < self.gap for a in one for b in other):
                    self.known = [each for each in self.known if each is not one and each is not other]
                    self.known.append(one + other)
                    return True
        return False
