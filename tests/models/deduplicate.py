"""Deduplication in plain Python, slow and obviously right: every row is compared with every row that was kept."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from headrace.testing.elements import At


def batches(rows: list[At], places: Iterable[int]) -> list[list[At]]:
    """The rows cut before each of some places."""
    cuts = [0, *sorted(places), len(rows)]
    return [rows[start:end] for start, end in pairwise(cuts)]


def kept(given: list[list[At]], within: int, *, key: str = "account") -> list[dict[str, Any]]:
    """The rows that are no repeats, batch by batch; in a batch in the order of time, then partition, then place."""
    found: list[At] = []
    for batch in given:
        for row in sorted(batch, key=lambda row: (row.time, row.partition)):
            same = [other for other in found if other.columns[key] == row.columns[key]]
            if all(abs(row.time - other.time) >= within for other in same):  # type: ignore[operator]
                found.append(row)
    return [dict(row.columns) for row in found]
