"""An outbox in plain Python: of every key its inserts, in the order of their positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def messages(changes: Iterable[Mapping[str, Any]]) -> dict[Any, list[str]]:
    """The payloads of each key in the order in which they were committed."""
    found: dict[Any, list[str]] = {}
    for change in sorted(changes, key=lambda change: change["position"]):
        if change["change"] == "insert":
            found.setdefault(change["aggregate_id"], []).append(change["payload"])
    return found
