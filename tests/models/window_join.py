"""Joins by window in plain Python: every left row is held against every right row in every window of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.models import interval_join as model
from tests.models.interval_join import Row

Place = tuple[int, int, int | None, int | None]


def answer(rows: Iterable[Row], windows: dict[int, list[tuple[int, int]]], how: str) -> Counter[Place]:
    """The couples of each window; ``windows`` are those that each row took part in, by its number."""
    given = list(rows)
    found: Counter[Place] = Counter()
    for window in sorted({window for each in windows.values() for window in each}):
        inside = [row for row in given if window in windows[row.number]]
        couples = model.answer(inside, lambda left, right: True, how)
        found.update({(*window, *couple): count for couple, count in couples.items()})
    return found


def windows_of(time: int, size: int, every: int) -> list[tuple[int, int]]:
    """The windows ``[start, end)`` of one length that begin every so often and hold a time."""
    first = time // every * every
    return [(start, start + size) for start in range(first, first - size, -every) if start <= time < start + size]
