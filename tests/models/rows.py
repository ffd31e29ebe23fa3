"""Rows for property tests: in the order of their arrival, none further behind an earlier one than a bound."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.testing import at, batch, crash
from headrace.testing.elements import At

START = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS = 4


@dataclass(frozen=True)
class Event:
    """One row as a model sees it."""

    account: str
    time: int
    """Microseconds since the epoch."""
    amount: int | None


@dataclass(frozen=True)
class Input:
    """The same rows for the model and for the timeline."""

    events: list[Event]
    rows: list[At]


def make_input(
    seed: int,
    *,
    rows: int = 200,
    pace: int = 11,
    disorder: int = 900,
    accounts: str = "abcde",
    partitions: int = 1,
    start: datetime = START,
) -> Input:
    """Rows ``pace`` seconds apart, each up to ``disorder`` seconds behind its place; a few amounts are missing."""
    chance = random.Random(seed)
    events: list[Event] = []
    arriving: list[At] = []
    for place in range(rows):
        time = start + timedelta(seconds=place * pace - chance.randrange(disorder + 1))
        account = chance.choice(accounts)
        amount = None if chance.random() < 0.05 else chance.randrange(-100, 100)
        events.append(Event(account, micros(time), amount))
        arriving.append(at(time, account=account, amount=amount, partition=chance.randrange(partitions)))
    return Input(events, arriving)


def micros(time: datetime) -> int:
    """A moment in microseconds since the epoch."""
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def split(rows: list[At], batches: set[int], crashes: set[int] | None = None) -> list[Any]:
    """The rows with a batch before each of some places, and a crash in the middle of a batch before each of others."""
    elements: list[Any] = []
    for place, row in enumerate(rows):
        if crashes is not None and place in crashes:
            elements += [crash(), batch()]
        elif place in batches:
            elements.append(batch())
        elements.append(row)
    return elements


def end_of_rows(later: datetime = START + timedelta(days=1), **columns: Any) -> list[Any]:
    """A row of another account in every partition, a day later, so that every window closes."""
    given = {"account": "end", "amount": 0, **columns}
    return [batch(), *(at(later, partition=number, **given) for number in range(PARTITIONS)), batch(), batch()]
