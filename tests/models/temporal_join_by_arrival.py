"""A temporal join by arrival in plain Python: batch by batch, first all its versions, then its rows one by one."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from headrace.testing import at
from headrace.testing.elements import At
from tests.models.rows import START, micros
from tests.models.temporal_join import ENDING, time_of

ITEMS = ["a", "b", "c", None]


def make(seed: int, *, rows: int, pace: int = 11, disorder: int = 900, changelog: bool) -> list[At]:
    """Rows and versions ``pace`` seconds apart, each up to ``disorder`` seconds behind its place.

    Without positions the order of an item's versions is that of their arrival, so they all come in one partition;
    with them it is that of their times, whatever the partition, and some come twice.
    """
    chance = random.Random(seed)
    made: list[At] = []
    for place in range(rows):
        time = START + timedelta(seconds=place * pace - chance.randrange(disorder + 1))
        number = chance.randrange(len(ITEMS))
        given: dict[str, Any] = {"item": ITEMS[number], "partition": chance.randrange(4) if changelog else number}
        if chance.random() < 0.6:
            made.append(at(time, n=place, **given))
            continue
        given |= {"side": "right", "v": place}
        if not changelog:
            made.append(at(time, **given))
            continue
        position = f"{micros(time):020d}{place:06d}"
        kinds = chance.choice([["insert"], ["update_after"], ["delete"], ["update_before", "update_after"]])
        changes = [at(time, change=kind, position=position, **given) for kind in kinds]
        chance.shuffle(changes)
        made += changes * chance.choice([1, 1, 1, 2])
    return made


def parts(elements: Sequence[At], places: Iterable[int]) -> list[list[At]]:
    """The rows of each batch, where one ends before each of these places."""
    ends = [0, *sorted(place for place in set(places) if 0 < place < len(elements)), len(elements)]
    return [list(elements[start:end]) for start, end in pairwise(ends)]


def answer(batches: Iterable[Sequence[At]], *, how: str, ttl: int | None) -> dict[int, int | None]:
    """What each row meets, by its number, when nothing is ever forgotten."""
    known: list[At] = []
    found: dict[int, int | None] = {}
    for elements in batches:
        known += [each for each in elements if each.side == "right"]
        for row in elements:
            if row.side == "left":
                found[row.columns["n"]] = met(row, latest(row.columns["item"], known), ttl)
    return found if how == "left" else {n: version for n, version in found.items() if version is not None}


def latest(item: str | None, versions: Iterable[At]) -> At | None:
    """The latest version of an item: the one with the highest position, else the one that came last."""
    found: At | None = None
    for version in versions:
        if item is not None and version.columns["item"] == item and (found is None or _order(found) <= _order(version)):
            found = version
    return found


def met(row: At, version: At | None, ttl: int | None) -> int | None:
    """The number of the latest version, unless it is an end or has outlived its time."""
    if version is None or version.columns.get("change") in ENDING:
        return None
    expired = ttl is not None and time_of(row) - time_of(version) >= ttl
    return None if expired else version.columns["v"]


def _order(version: At) -> tuple[str, bool]:
    return version.columns.get("position", ""), version.columns.get("change") not in ENDING
