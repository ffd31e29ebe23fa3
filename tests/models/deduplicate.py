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


def last(rows: list[At], within: int, *, key: str = "account") -> list[dict[str, Any]]:
    """The rows that stand after all have arrived: each row takes the last one back, unless that is too old or later."""
    current: dict[Any, At] = {}
    standing: list[At] = []
    for row in rows:
        known = current.get(row.columns[key])
        if known is not None and row.time < known.time:  # type: ignore[operator]
            continue
        if known is not None and row.time - known.time < within:  # type: ignore[operator]
            standing.remove(known)
        standing.append(row)
        current[row.columns[key]] = row
    return [dict(row.columns) for row in standing]


def standing(changes: Iterable[dict[str, Any]], columns: Iterable[str]) -> list[dict[str, Any]]:
    """The rows that a changelog leaves; it takes back only what it has given."""
    found: list[dict[str, Any]] = []
    names = list(columns)
    for change in changes:
        row = {name: change[name] for name in names}
        if change["change"] == "update_before":
            found.remove(row)
        else:
            found.append(row)
    return found
