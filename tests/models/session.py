"""Sessions in plain Python, slow and obviously right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.models.rows import Event

Place = tuple[str | None, int, int]
Answer = dict[Place, tuple[Any, ...]]
Rows = list[Event]
Gap = int | Callable[[Event], int]


def end_alone(row: Event, gap: Gap) -> int:
    """Where a session of this row alone ends."""
    return row.time + (gap if isinstance(gap, int) else gap(row))


def sessions(rows: Iterable[Event], gap: Gap, max_length: int | None = None) -> list[Rows]:
    """Rows of one key in sessions: each row in the order of time joins the last session or begins another."""
    found: list[Rows] = []
    for row in sorted(rows, key=lambda row: row.time):
        joins = bool(found) and row.time < max(end_alone(each, gap) for each in found[-1])
        if joins and (max_length is None or row.time - found[-1][0].time < max_length):
            found[-1].append(row)
        else:
            found.append([row])
    return found


def end_of(session: Rows, gap: Gap, max_length: int | None = None) -> int:
    """Where its rows alone would end at the latest, or the greatest length behind the first."""
    silent = max(end_alone(row, gap) for row in session)
    return silent if max_length is None else min(silent, min(row.time for row in session) + max_length)


def values(session: Rows) -> tuple[Any, ...]:
    """Rows, known amounts, their sum, least and most."""
    known = [row.amount for row in session if row.amount is not None]
    least, most = (min(known), max(known)) if known else (None, None)
    return (len(session), len(known), sum(known) if known else None, least, most)


def answer(events: Iterable[Event], gap: Gap, max_length: int | None = None, *, keyed: bool = True) -> Answer:
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

    gap: Gap
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
                if one is not other and any(self._touch(a, b) for a in one for b in other):
                    self.known = [each for each in self.known if each is not one and each is not other]
                    self.known.append(one + other)
                    return True
        return False

    def _touch(self, one: Event, other: Event) -> bool:
        return one.time < end_alone(other, self.gap) and other.time < end_alone(one, self.gap)
