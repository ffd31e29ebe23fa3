"""A case: one sink and the plain ways of doing the same, measured in turns and compared by what they have written."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.wheel.cases import say

Digest = tuple[int, str]
"""How many rows a sink holds, and a sum over all of them that does not depend on their order."""
WARM_UP = 1


@dataclass(frozen=True, slots=True)
class Way:
    """One way of writing a batch, by its number, and of seeing what is there after all batches."""

    name: str
    write: Callable[[int], None]
    digest: Callable[[], Digest]


@dataclass(frozen=True, slots=True)
class Case:
    """Our sink beside its peers; the ratio is to the fastest of them."""

    ratio: str
    ours: Way
    peers: tuple[Way, ...]
    least_ratio: float | None = None
    """The goal, if there is one."""
    enough: float | None = None
    """A rate that reaches the goal too, whatever the ratio is."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The rates of all runs of a case, by the name of the way."""

    case: Case
    rates: Mapping[str, list[float]]

    def median(self, way: Way) -> float:
        """The middle rate of a way."""
        return statistics.median(self.rates[way.name])

    @property
    def fastest(self) -> Way:
        """The peer that we are compared with."""
        return max(self.case.peers, key=self.median)

    @property
    def ratio(self) -> float:
        """Our rate as a multiple of the fastest peer's."""
        return self.median(self.case.ours) / self.median(self.fastest)

    @property
    def goal(self) -> float | None:
        """What the ratio must be on this machine."""
        if self.case.least_ratio is None or self.case.enough is None:
            return self.case.least_ratio
        return min(self.case.least_ratio, self.case.enough / self.median(self.fastest))


def compare(case: Case, rows: int, runs: int) -> Compared:
    """Let all ways write the same batches, in turns; the first batch warms up."""
    ways = (case.ours, *case.peers)
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    for batch in range(WARM_UP + runs):
        for way in ways:
            began = time.perf_counter()
            way.write(batch)
            rate = rows / (time.perf_counter() - began)
            if batch >= WARM_UP:
                rates[way.name].append(rate)
            turn = f"run {batch} of {runs}" if batch >= WARM_UP else "warm-up"
            say(f"{case.ratio}, {turn}: {way.name} {rate:,.0f} rows/s")
    _check_equal(case, ways)
    return Compared(case, rates)


def _check_equal(case: Case, ways: tuple[Way, ...]) -> None:
    digests = {way.name: way.digest() for way in ways}
    if len(set(digests.values())) > 1 or min(digests.values())[0] == 0:
        raise SystemExit(f"{case.ratio}: the ways disagree, so no rate means anything: {digests}")
    say(f"{case.ratio}: {digests[ways[0].name][0]:,} rows, equal in all")
