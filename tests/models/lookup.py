"""A lookup in plain Python: every row is asked for on its own, one after the other."""

from __future__ import annotations

from typing import Any

from headrace.testing.elements import At

UNKNOWN = "d"
FAILING = "e"


def about(account: str) -> dict[str, Any] | None:
    """What the service says of an account; it fails for one and does not know another."""
    if account == FAILING:
        raise ConnectionError(account)
    return None if account == UNKNOWN else {"label": account * 2, "rank": ord(account)}


def enriched(rows: list[At]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows with what the service says, and those for which it says nothing, both in the order they came."""
    answered, failed = [], []
    for row in rows:
        columns = dict(row.columns)
        try:
            said = about(columns["account"]) if columns["account"] is not None else None
        except ConnectionError:
            failed.append(columns)
        else:
            answered.append({**columns, "label": None, "rank": None, **(said or {})})
    return answered, failed


def counted(rows: list[At], length: int) -> dict[tuple[str | None, int], int]:
    """How many answered rows each label has in each window of so many microseconds."""
    counts: dict[tuple[str | None, int], int] = {}
    for row in rows:
        answered, _ = enriched([row])
        for columns in answered:
            assert row.time is not None
            place = (columns["label"], row.time // length * length)
            counts[place] = counts.get(place, 0) + 1
    return counts
