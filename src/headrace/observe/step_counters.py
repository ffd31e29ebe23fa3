"""Per-step counters beside the account, such as partial matches beyond the limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

Reports = Mapping[str, Mapping[int, Mapping[str, Any]]]


def step_counters(reports: Reports) -> dict[str, dict[str, int]]:
    """The counters of each step, summed over its tasks and key groups.

    >>> step_counters({"state.fraud": {1: {"counters": {"overflow": 2}}, 7: {"counters": {"overflow": 1}}}})
    {'fraud': {'overflow': 3}}
    """
    found = {}
    for node, parts in reports.items():
        numbers: Counter[str] = Counter()
        for part in parts.values():
            numbers.update(part.get("counters", {}))
        if numbers:
            found[node.split(".", 1)[1]] = dict(numbers)
    return found
