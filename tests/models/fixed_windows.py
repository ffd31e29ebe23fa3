"""Fixed windows in plain Python, slow and obviously right: every row is put into every window that covers it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tests.models.rows import Event

MINUTE = 60_000_000
Window = tuple[int, int]
Covering = Callable[[int], list[Window]]
Answer = dict[tuple[str | None, int, int], tuple[Any, ...]]


def tumbling(size: int, offset: int = 0) -> Covering:
    """One window."""
    return lambda time: [((time - offset) // size * size + offset, (time - offset) // size * size + offset + size)]


def hopping(size: int, every: int, offset: int = 0) -> Covering:
    """Each window that began at most its size ago."""

    def covering(time: int) -> list[Window]:
        newest = (time - offset) // every * every + offset
        starts = [newest - number * every for number in range(size // every + 1)]
        return [(start, start + size) for start in starts if start <= time < start + size]

    return covering


def cumulating(step: int, size: int, offset: int = 0) -> Covering:
    """Each window that began with the full one and ends after the time."""

    def covering(time: int) -> list[Window]:
        start = (time - offset) // size * size + offset
        return [(start, start + grown) for grown in range(step, size + 1, step) if time < start + grown]

    return covering


def answer(events: Iterable[Event], covering: Covering, *, keyed: bool = True) -> Answer:
    """Rows, known amounts, their sum, least and most for each window of each account."""
    windows: defaultdict[tuple[str | None, int, int], list[int | None]] = defaultdict(list)
    for event in events:
        for start, end in covering(event.time):
            windows[event.account if keyed else None, start, end].append(event.amount)
    return {window: aggregated(amounts) for window, amounts in windows.items()}


AGGREGATES = {
    "n": "count(*)",
    "known": "count(amount)",
    "spent": "sum(amount)",
    "least": "min(amount)",
    "most": "max(amount)",
}
"""What a step is asked for, in the order of ``aggregated``."""


def aggregated(amounts: list[int | None]) -> tuple[Any, ...]:
    """Rows, known amounts, their sum, least and most."""
    known = [amount for amount in amounts if amount is not None]
    least, most = (min(known), max(known)) if known else (None, None)
    return (len(amounts), len(known), sum(known) if known else None, least, most)
