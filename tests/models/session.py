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


@dataclass
class Shown:
    """A session that is open, and what was told of it."""

    rows: Rows
    unseen: int
    preview_at: int | None = None
    revision: int = 0
    given: tuple[Any, ...] | None = None
    """Start, end, values, pane and revision as they were told last."""


@dataclass
class Previewed:
    """Sessions of one key, forgotten at their close, with previews at multiples of a time."""

    gap: Gap
    every: int
    by_event_time: bool = False
    """Whether previews go by event time, and not by the clock."""
    open: list[Shown] = field(default_factory=list)
    results: list[tuple[Any, ...]] = field(default_factory=list)
    """Start, end, values, pane, revision and change of every result."""
    late: Rows = field(default_factory=list)

    def batch(self, watermark: int, clock: int, rows: Rows) -> None:
        """A batch whose watermark and clock are these: sessions close, rows come, previews leave."""
        for session in [each for each in self.open if end_of(each.rows, self.gap) <= watermark]:
            self._tell(session, "on_time")
            self.open.remove(session)
        now = watermark if self.by_event_time else clock
        known = self.open
        every_row = [row for session in known for row in session.rows] + rows
        self.open = []
        for together in sessions(every_row, self.gap):
            members = [session for session in known if any(row is session.rows[0] for row in together)]
            if end_of(together, self.gap) <= watermark:
                self.late += together
            else:
                self.open.append(self._made_one(together, sorted(members, key=_first), now))
        for session in self.open:
            if session.preview_at is not None and session.preview_at <= now:
                self._tell(session, "early")

    def _made_one(self, rows: Rows, members: list[Shown], now: int) -> Shown:
        """The session of these rows; where several were told of, the first remains, and is told again at once."""
        new = len(rows) - sum(len(each.rows) for each in members)
        made = Shown(rows, new + sum(each.unseen for each in members))
        made.preview_at = min((each.preview_at for each in members if each.preview_at is not None), default=None)
        if made.unseen and made.preview_at is None:
            passed = max(now, _first(made)) if self.by_event_time else now
            made.preview_at = (passed // self.every + 1) * self.every
        known = [each for each in members if each.given is not None]
        if known:
            made.revision, made.given = known[0].revision, known[0].given
        for swallowed in known[1:]:
            self.results.append((*(swallowed.given or ()), "delete"))
            made.preview_at = now
        return made

    def _tell(self, session: Shown, pane: str) -> None:
        change = "insert" if session.given is None else "update_after"
        start = min(row.time for row in session.rows)
        session.given = (start, end_of(session.rows, self.gap), *values(session.rows), pane, session.revision)
        self.results.append((*session.given, change))
        session.revision += 1
        session.unseen, session.preview_at = 0, None


def _first(session: Shown) -> int:
    return min(row.time for row in session.rows)
