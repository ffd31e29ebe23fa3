"""Moves for property tests: between batches the clock and the watermark move by hand, and a batch may die."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from headrace.testing import at, batch, clock, crash, watermark
from tests.models.rows import START, Event, micros

MINUTE = timedelta(minutes=1)
OPENING = "opening"
"""The account of a row that every timeline begins with, so that none is without rows."""


@dataclass(frozen=True)
class Move:
    """The clock and the watermark move by so many seconds and units; then rows come as one batch, which may die."""

    seconds: int
    watermark: int
    rows: Sequence[tuple[str, int]]
    """The account of a row, and by how many units its time is ahead of the watermark."""
    dies: bool


@st.composite
def moves(draw: st.DrawFn, *, ahead: int, behind: int, further: int) -> list[Move]:
    """A few moves; the clock often stays or comes to a multiple of ten seconds, the watermark often stays."""
    seconds = st.sampled_from([0, 5, 10, 15])
    watermarks = st.one_of(st.just(0), st.integers(1, further))
    chance = random.Random(draw(st.integers(0, 2**32)))

    def rows() -> list[tuple[str, int]]:
        return [(chance.choice("ab"), chance.randint(-behind, ahead)) for _ in range(chance.randrange(6))]

    chosen = draw(st.lists(st.tuples(seconds, watermarks, st.booleans()), min_size=4, max_size=9))
    return [Move(second, watermark, rows(), dies) for second, watermark, dies in chosen]


Observer = Callable[[int, int, list[Event]], None]
"""Takes the watermark, the clock and the rows of a batch."""


def played(given: Sequence[Move], observe: Observer, *, unit: timedelta = MINUTE, start: datetime = START) -> list[Any]:
    """The elements of a timeline, of which the model is told batch by batch; at the end everything closes."""
    by_clock, passed, number = start + timedelta(days=365), start, 0
    elements: list[Any] = [clock(by_clock), at(start, account=OPENING, amount=0), watermark(start)]
    observe(0, micros(by_clock), [Event(OPENING, micros(start), 0)])
    observe(micros(passed), micros(by_clock), [])
    for move in given:
        by_clock += timedelta(seconds=move.seconds)
        elements.append(clock(by_clock))
        if move.watermark:
            passed += move.watermark * unit
            elements.append(watermark(passed))
            observe(micros(passed), micros(by_clock), [])
        events = []
        for account, ahead in move.rows:
            number += 1
            amount = None if number % 6 == 0 else number
            events.append(Event(account, micros(passed + ahead * unit), amount))
            elements.append(at(passed + ahead * unit, account=account, amount=amount, partition=number % 3))
        observe(micros(passed), micros(by_clock), events)
        if move.dies:
            elements.append(crash())
        if move.dies and events:
            # What dies runs again by the clock that it died by.
            by_clock += timedelta(seconds=5)
            elements.append(clock(by_clock))
        elements.append(batch())
    end = passed + 1000 * unit
    observe(micros(end), micros(by_clock), [])
    return [*elements, watermark(end)]
