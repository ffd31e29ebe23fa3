"""Joins of two sides in plain Python, slow and obviously right: every left row is held against every right row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from headrace.testing import at
from headrace.testing.elements import At
from tests.models.rows import PARTITIONS, START, micros

Couple = tuple[int | None, int | None]
Answer = Counter[Couple]
Meet = Callable[["Row", "Row"], bool]


@dataclass(frozen=True)
class Row:
    """One row of either side, in the order of arrival by its number."""

    side: str
    user: str | None
    time: int
    number: int
    more: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Its further columns: ``begins`` and ``ends`` of a left row, ``price`` of a right one."""


def same_key(left: Row, right: Row) -> bool:
    """Null equals nothing."""
    return left.user is not None and left.user == right.user


def answer(rows: Iterable[Row], meet: Meet, how: str, match: str = "all", same: Meet = same_key) -> Answer:
    """The couples that leave, by the numbers of their rows."""
    given = list(rows)
    lefts, rights = ([row for row in given if row.side == side] for side in ("left", "right"))
    met = {left.number: [right for right in rights if same(left, right) and meet(left, right)] for left in lefts}
    if how in ("semi", "anti"):
        return Counter((number, None) for number, partners in met.items() if bool(partners) == (how == "semi"))
    found: Answer = Counter()
    for number, partners in met.items():
        found.update((number, right.number) for right in chosen(partners, match))
        if not partners and how in ("left", "full"):
            found[number, None] += 1
    if how in ("right", "full"):
        taken = {right.number for partners in met.values() for right in partners}
        found.update((None, right.number) for right in rights if right.number not in taken)
    return found


SAME: dict[str, Meet] = {
    "key": same_key,
    "nulls too": lambda left, right: left.user == right.user,
    "no key": lambda left, right: True,
}
"""Which rows have the same key."""


def chosen(partners: list[Row], match: str) -> list[Row]:
    """All, or the first or last by time and then arrival, or the best by price; null is the worst price."""
    ordered = sorted(partners, key=lambda row: (row.time, row.number))
    if match in ("highest", "lowest"):
        sign = -1 if match == "highest" else 1
        return sorted(ordered, key=lambda row: (row.more["price"] is None, sign * (row.more["price"] or 0)))[:1]
    return ordered if match == "all" else ordered[:1] if match == "first" else ordered[-1:]


def near(low: int, high: int, bounds: str) -> Meet:
    """Whether the right row's time is so far from the left one's."""

    def meet(left: Row, right: Row) -> bool:
        apart = right.time - left.time
        after = low < apart if bounds[0] == "(" else low <= apart
        before = apart < high if bounds[1] == ")" else apart <= high
        return after and before

    return meet


def within_own(low: int | None, bounds: str) -> Meet:
    """Whether the right row comes from so long after the left one, or from its ``begins`` on, until its ``ends``."""

    def meet(left: Row, right: Row) -> bool:
        ends, begins = left.more["ends"], left.more["begins"]
        if low is not None:
            begins = moment_of(left) + timedelta(microseconds=low)
        if begins is None or ends is None or (low is None and right.time < left.time):
            return False
        time = moment_of(right)
        after = begins < time if bounds[0] == "(" else begins <= time
        before = time < ends if bounds[1] == ")" else time <= ends
        return bool(after and before)

    return meet


def followed(rows: Sequence[dict[str, Any]]) -> Answer:
    """What a reader holds at the end who follows every change; what is taken back was there."""
    held: Answer = Counter()
    for row in rows:
        couple = (row.get("left_number"), row.get("right_number"))
        if row.get("change") == "delete":
            assert held[couple] > 0
            held[couple] -= 1
        else:
            held[couple] += 1
    return +held


def make_sides(seed: int, *, rows: int, pace: int, disorder: int, users: str, partitions: int = 1) -> list[Row]:
    """Rows of both sides ``pace`` seconds apart, each up to ``disorder`` seconds behind its place; some without key."""
    chance = random.Random(seed)
    made = []
    for number in range(rows):
        time = START + timedelta(seconds=number * pace - chance.randrange(disorder + 1))
        user = None if chance.random() < 0.05 else chance.choice(users)
        made.append(Row(chance.choice(["left", "right"]), user, micros(time), number))
    return made


def arriving(row: Row, partition: int = 0) -> At:
    """A row as a timeline has it."""
    named = {"left_number" if row.side == "left" else "right_number": row.number, **row.more}
    return at(moment_of(row), side=row.side, user=row.user, partition=partition, **named)  # type: ignore[arg-type]


def moment_of(row: Row) -> datetime:
    """The time of a row."""
    return START + timedelta(microseconds=row.time - micros(START))


def with_own_intervals(rows: Iterable[Row], seed: int, *, longest: int) -> list[Row]:
    """The rows with begins and ends up to so many seconds after them, some before or none, and with prices."""
    chance = random.Random(seed)

    def some(row: Row, least: int) -> datetime | None:
        away = timedelta(seconds=chance.randrange(least, longest))
        return None if chance.random() < 0.1 else moment_of(row) + away

    made = []
    for row in rows:
        price = None if chance.random() < 0.1 else chance.randrange(5)
        own = {"begins": some(row, -longest), "ends": some(row, -longest // 4)}
        made.append(replace(row, more=own if row.side == "left" else {"price": price}))
    return made


def end_of_sides() -> list[At]:
    """A row on each side in every partition, a day later, so that nothing waits; their keys differ."""
    later = micros(START + timedelta(days=1))
    return [
        arriving(Row(side, f"end of {side} {partition}", later, -1), partition)
        for side in ("left", "right")
        for partition in range(PARTITIONS)
    ]


def without_the_end(found: Answer) -> Answer:
    """Without the rows that end it all."""
    return Counter({couple: count for couple, count in found.items() if -1 not in couple})
