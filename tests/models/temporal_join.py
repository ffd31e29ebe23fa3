"""A temporal join in plain Python, slow and obviously right: for every row all versions are looked at."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.testing import at
from headrace.testing.elements import At
from tests.models.rows import START

ENDING = ("delete", "update_before")


@dataclass(frozen=True)
class Given:
    """Rows and versions in the order of their arrival; each has a number of its own."""

    elements: list[At]

    @property
    def rows(self) -> list[At]:
        return [each for each in self.elements if each.side == "left"]

    @property
    def versions(self) -> list[At]:
        return [each for each in self.elements if each.side == "right"]


def make(seed: int, *, rows: int = 200, pace: int = 11, disorder: int = 900, changelog: bool, partitions: int) -> Given:
    """Rows and versions ``pace`` seconds apart, each up to ``disorder`` seconds behind its place."""
    chance = random.Random(seed)
    elements: list[At] = []
    for place in range(rows):
        time = START + timedelta(seconds=place * pace - chance.randrange(disorder + 1))
        item = chance.choice(["a", "b", "c", None])
        partition = chance.randrange(partitions)
        if chance.random() < 0.6:
            elements.append(at(time, item=item, n=place, partition=partition))
            continue
        columns: dict[str, Any] = {}
        if changelog:
            change = chance.choice(["insert", "update_after", "delete", "update_before"])
            columns = {"change": change, "position": f"{chance.randrange(10**6):06d}"}
        else:
            # Without positions the order of versions at one time is that of their arrival, which batches change.
            time += timedelta(microseconds=place)
        version = at(time, side="right", item=item, v=place, partition=partition, **columns)
        elements += [version, version] if changelog and chance.random() < 0.1 else [version]
    return Given(elements)


def met(row: At, versions: list[At], *, ttl: int | None) -> int | None:
    """The number of the version that a row meets."""
    found = [
        version
        for version in versions
        if version.columns["item"] == row.columns["item"] is not None and version.time <= row.time  # type: ignore[operator]
    ]
    if not found:
        return None
    last = max(found, key=_order)
    ended = last.columns.get("change") in ENDING
    expired = ttl is not None and row.time - last.time >= ttl  # type: ignore[operator]
    return None if ended or expired else last.columns["v"]


def _order(version: At) -> tuple[Any, ...]:
    ends = version.columns.get("change") in ENDING
    return version.time, version.columns.get("position", ""), not ends


def answer(given: Given, *, how: str, ttl: int | None) -> dict[int, int | None]:
    """What each row meets, by its number."""
    found = {row.columns["n"]: met(row, given.versions, ttl=ttl) for row in given.rows}
    return found if how == "left" else {n: version for n, version in found.items() if version is not None}


def time_of(element: At) -> int:
    """The time of a row, which all have here."""
    assert element.time is not None
    return element.time
