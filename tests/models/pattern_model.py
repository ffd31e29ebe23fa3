"""Patterns in plain Python, slow and straight from the definition: every way to give rows to steps is tried.

Knows nothing of automata: it walks through the elements and asks of each which rows may come next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.operators.patterns.definition import Element
from headrace.operators.patterns.skip import Skip

INNER = {"relaxed": "followed_by", "consecutive": "next", "combinations": "followed_by_any"}
FOREVER = 1 << 60


@dataclass(frozen=True)
class Event:
    """A row: its time, its letter."""

    time: int
    letter: str


@dataclass(frozen=True)
class Taken:
    """What has been given to steps so far, and what must hold for the row that is taken next."""

    rows: tuple[tuple[int, str], ...] = ()
    begun: int = -1
    """The first row of the element before."""
    exits: tuple[int, ...] = ()
    """Rows of the element before with which it might have ended."""
    bans: tuple[tuple[str, int], ...] = ()
    """Letters that must not come behind a place."""
    greedy: tuple[str, int, bool, str, int | None] | None = None
    """Letters that a greedy element would still take, from where on, whether only the very next row counts, letters
    from which on it takes nothing, and how long behind its last row it takes one."""
    look: bool = False
    """Whether a row must come, because the match says what it is not."""

    @property
    def last(self) -> int:
        return self.rows[-1][0] if self.rows else -1


@dataclass(frozen=True)
class Model:
    """The rows of one key and a pattern's elements; conditions are the letters that meet them."""

    elements: Sequence[Element]
    events: Sequence[Event]
    within: int | None = None

    def matches(self, skip: Skip | None = None) -> list[tuple[tuple[int, str], ...]]:
        """Every match as (place of the row, step), in the order in which they are emitted."""
        complete = [
            (end, taken.rows) for taken in self._walk(self.elements, Taken()) if (end := self._end(taken)) is not None
        ]
        found = [rows for _, rows in sorted(complete, key=lambda match: (match[1][0][0], match[0]))]
        kept, least = [], 0
        for rows in found:
            if rows[0][0] >= least:
                kept.append(rows)
                least = max(least, self._skipped(rows, skip or Skip("none")))
        return kept

    @staticmethod
    def _skipped(rows: tuple[tuple[int, str], ...], skip: Skip) -> int:
        named = [place for place, step in rows if step == skip.step]
        match skip.kind:
            case "to_next":
                return rows[0][0] + 1
            case "past_last":
                return rows[-1][0] + 1
            case "to_first" if named:
                return named[0]
            case "to_last" if named:
                return named[-1]
        return 0

    def _end(self, taken: Taken) -> tuple[int, int] | None:
        """When a match is complete: (time, place); None if it never is."""
        if not taken.rows:
            return None
        place = taken.last
        last = self.elements[-1]
        if taken.look and (place + 1 >= len(self.events) or not self._in_time(taken, place + 1)):
            return None
        if last.contiguity != "not_followed_by":
            place += taken.look
            return self.events[place].time, place
        ends = [self.events[taken.rows[0][0]].time + self.within] if self.within is not None else []
        if last.since_previous is not None:
            ends.append(self.events[place].time + last.since_previous)
        until = sum(event.time < min(ends) for event in self.events)
        return (min(ends), until) if self._allowed(taken, until - 1) else None

    def _walk(self, elements: Sequence[Element], taken: Taken, head: str | None = None) -> Iterator[Taken]:
        if not elements:
            yield taken
            return
        element, rest = elements[0], elements[1:]
        letters = _letters(element.where, element.step)
        if element.contiguity == "not_followed_by":
            banned = replace(taken, bans=(*taken.bans, (letters, taken.begun)))
            if self._allowed(replace(banned, greedy=None), taken.last):
                yield from self._walk(rest, banned)
        elif element.contiguity == "not_next":
            following = [self.events[place + 1].letter for place in taken.exits if place + 1 < len(self.events)]
            if not any(letter in letters for letter in following):
                yield from self._walk(rest, replace(taken, look=True))
        else:
            contiguity = head or element.contiguity
            if element.quantifier.optional:
                left = (_wanted(element), taken.last, contiguity == "next", "", element.since_previous)
                yield from self._walk(rest, replace(taken, greedy=left if element.quantifier.greedy else None))
            for done in self._repeated(element, taken, contiguity, 1):
                yield from self._walk(rest, done)

    def _repeated(self, element: Element, taken: Taken, contiguity: str, number: int) -> Iterator[Taken]:
        """The element from its ``number``-th time on, left whenever it may be."""
        quantifier = element.quantifier
        until = "" if quantifier.until is None else quantifier.until
        for done in self._once(element, taken, contiguity):
            added = [place for place, _ in done.rows[len(taken.rows) :]]
            waited = taken.last + 1 if taken.rows else added[0]
            blocked = range(waited, added[-1] + 1) if number > 1 or element.group else added
            if any(self.events[place].letter in until for place in blocked):
                continue
            # What must not come behind a group counts once the group is over, behind a step from its first row on.
            begun = added[-1] if element.group else added[0] if number == 1 else taken.begun
            exits = taken.exits if number > 1 else ()
            ended = replace(done, begun=begun, exits=(*exits, added[-1]) if number >= quantifier.least else exits)
            more = quantifier.most is None or number < quantifier.most
            if number >= quantifier.least:
                strict = quantifier.inner == "consecutive"
                greedy = (_wanted(element), added[-1], strict, until, element.since_previous)
                yield replace(ended, greedy=greedy if quantifier.greedy and more else None)
            if more:
                yield from self._repeated(element, ended, INNER[quantifier.inner], number + 1)

    def _once(self, element: Element, taken: Taken, contiguity: str) -> Iterator[Taken]:
        if element.group:
            yield from self._walk(element.group, taken, contiguity)
            return
        letters = _letters(element.where, element.step)
        meeting = [
            place
            for place, event in enumerate(self.events)
            if event.letter in letters and (not taken.rows or place > taken.last)
        ]
        if taken.rows and contiguity == "next":
            meeting = [place for place in meeting if place == taken.last + 1]
        if taken.rows and contiguity == "followed_by":
            meeting = meeting[:1]
        for place in meeting:
            if self._allowed(taken, place) and self._in_time(taken, place, element.since_previous):
                yield Taken((*taken.rows, (place, str(element.step))))

    def _allowed(self, taken: Taken, place: int) -> bool:
        """Whether the next row may be the one at a place, given what must not come before it, nor be it."""
        for letters, behind in taken.bans:
            if any(event.letter in letters for event in self.events[behind + 1 : place + 1]):
                return False
        if taken.greedy is None:
            return True
        letters, behind, only_next, until, limit = taken.greedy
        if not taken.rows:
            return self.events[place].letter not in letters
        asked = range(behind + 1, min(place, behind + 1 if only_next else place) + 1)
        for event in self.events[asked.start : asked.stop]:
            if event.letter in until:
                return True
            if event.letter in letters and event.time - self.events[behind].time < (limit or FOREVER):
                return False
        return True

    def _in_time(self, taken: Taken, place: int, limit: int | None = None) -> bool:
        if not taken.rows:
            return True
        time, first, last = (self.events[each].time for each in (place, taken.rows[0][0], taken.last))
        return time - first < (self.within or FOREVER) and time - last < (limit or FOREVER)


def _wanted(element: Element) -> str:
    """The letters that an element would take again."""
    until = element.quantifier.until or ""
    return "".join(letter for letter in _letters(element.where, element.step) if letter not in until)


def _letters(where: str | None, step: str | None) -> str:
    return where if where is not None else str(step)
