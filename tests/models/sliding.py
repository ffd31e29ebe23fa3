"""Sliding windows in plain Python, slow and obviously right: every row looks at every other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from headrace.testing.elements import At
from tests.models.rows import Event, Input

Answer = dict[int, tuple[Any, ...]]
"""Rows, known amounts, their sum, least and most for each row, by its number."""


def numbered(given: Input) -> list[At]:
    """The rows with their numbers, by which their windows are known."""
    return [replace(row, columns={**row.columns, "number": number}) for number, row in enumerate(given.rows)]


def answer(events: list[Event], size: int, *, keyed: bool = True, without: Collection[int] = ()) -> Answer:
    """The aggregate over ``(t - size, t]`` for every row; some rows are left out."""
    taken = {number: event for number, event in enumerate(events) if number not in without}
    return {
        number: _aggregated(
            [
                other.amount
                for other in taken.values()
                if event.time - size < other.time <= event.time and (other.account == event.account or not keyed)
            ]
        )
        for number, event in taken.items()
    }


def _aggregated(amounts: list[int | None]) -> tuple[Any, ...]:
    known = [amount for amount in amounts if amount is not None]
    least, most = (min(known), max(known)) if known else (None, None)
    return (len(amounts), len(known), sum(known) if known else None, least, most)
