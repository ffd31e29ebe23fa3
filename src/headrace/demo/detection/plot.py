"""Rows in which known cases are planted: what a detector must find, and what it must not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import polars as pl

from headrace.schemas import MOMENT

BEGINNING = datetime(2026, 3, 1, tzinfo=UTC)
OUT_OF_ORDER = timedelta(minutes=2)
MICROSECOND = timedelta(microseconds=1)
Story = Callable[[Random], Iterable[tuple[timedelta, dict[str, Any]]]]
"""What happens to one key: when after its beginning, and the columns of the row."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Stories by what they are: those to be found, and those that are nearly so or not at all."""

    key: str
    cases: dict[str, Story]
    near_misses: dict[str, Story]
    spread: timedelta = timedelta(hours=6)
    """Over how long the stories begin."""

    def planted(self, keys: int, seed: int) -> tuple[pl.DataFrame, dict[str, str], dict[str, str]]:
        """Rows of so many keys for each story, out of order within the bound; and which key has which story.

        Behind them stands one row of a key of its own that brings time past all others.
        """
        chance = Random(seed)
        told: dict[bool, dict[str, str]] = {True: {}, False: {}}
        rows: list[tuple[datetime, dict[str, Any]]] = []
        for is_case, stories in ((True, self.cases), (False, self.near_misses)):
            for name, story in stories.items():
                for number in range(keys):
                    key = f"{name.replace(' ', '-')}-{number}"
                    told[is_case][key] = name
                    begins = BEGINNING + self.spread * chance.random()
                    rows += [(begins + after, {self.key: key, **columns}) for after, columns in story(chance)]
        arrival = sorted(rows, key=lambda row: row[0] + OUT_OF_ORDER * 0.9 * chance.random())
        closing = max(at for at, _ in rows) + OUT_OF_ORDER + timedelta(seconds=1)
        columns = dict.fromkeys(arrival[0][1])
        last = {**columns, self.key: "end"}
        found = [{"at": at, **columns} for at, columns in [*arrival, (closing, last)]]
        return pl.DataFrame(found, schema_overrides={"at": MOMENT}), told[True], told[False]
