"""Numbers that steps tell of themselves beside the account, such as partial matches that were too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

Reports = Mapping[str, Mapping[int, Mapping[str, Any]]]


def told(reports: Reports) -> dict[str, dict[str, int]]:
    """What the key groups of each step told, added up.

    >>> told({"state.fraud": {1: {"told": {"overflow": 2}}, 7: {"told": {"overflow": 1}}}, "state.quiet": {}})
    {'fraud': {'overflow': 3}}
    """
    found = {}
    for node, parts in reports.items():
        numbers: Counter[str] = Counter()
        for part in parts.values():
            numbers.update(part.get("told", {}))
        if numbers:
            found[node.split(".", 1)[1]] = dict(numbers)
    return found
