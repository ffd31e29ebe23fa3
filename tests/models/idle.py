"""A story that joins share: one side goes on while the other says nothing until it counts as idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.testing import batch, clock, expect


def idle_for_long(before: Sequence[Any], goes_on: Sequence[Any]) -> list[Any]:
    """Both sides speak, one goes on, and nothing leaves before the other has been silent for a minute to the end."""
    return [
        *before,
        batch(),
        clock("2026-01-02T00:00:30"),
        *goes_on,
        batch(),
        clock("2026-01-02T00:00:59.999999"),
        batch(),
        expect(),
        clock("2026-01-02T00:01:00"),
        batch(),
    ]
