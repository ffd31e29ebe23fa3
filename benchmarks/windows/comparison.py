"""Systems in turns on the same rows: equal results first, then rates."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from benchmarks.wheel.cases import say
from benchmarks.windows.systems import FLINK, HEADRACE, SPARK, Place, Source, rate, results


@dataclass(frozen=True, slots=True)
class Compared:
    """The rates of all runs of a kind of windows, by system; the first is ours."""

    kind: str
    rates: Mapping[str, Sequence[float]]

    def median(self, system: str) -> float:
        """The middle rate."""
        return statistics.median(self.rates[system])

    def said(self, system: str) -> str:
        """The middle rate with the lowest and the highest."""
        rates = self.rates[system]
        return f"{system} {self.median(system):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"

    def ratio(self, peer: str) -> float:
        """Our rate as a multiple of a peer's."""
        return self.median(HEADRACE) / self.median(peer)


def compare(kind: str, systems: Sequence[str], source: Source, place: Place, *, runs: int) -> Compared:
    """Run the systems in turns."""
    rates: dict[str, list[float]] = {system: [] for system in systems}
    for turn in range(runs):
        for system in systems:
            found = rate(system, kind, source, place)
            rates[system].append(found)
            say(f"{kind}, run {turn + 1} of {runs}: {system} {found:,.0f} rows/s")
    return Compared(kind, rates)


def check_equal(kind: str, source: Source, closed: int, place: Place) -> int:
    """How many windows end before ``closed`` (milliseconds); all systems must have the same, with the same values."""
    found = {system: results(system, kind, source, place) for system in (HEADRACE, FLINK, SPARK)}
    # Flink closes every window at the end of the topic, Headrace and Spark those that time has passed.
    complete = {system: windows.filter(pl.col("end") < closed) for system, windows in found.items()}
    ours = complete[HEADRACE]
    for system, windows in complete.items():
        if ours.is_empty() or not windows.equals(ours):
            raise SystemExit(f"{kind}: {HEADRACE} and {system} disagree, so no rate means anything: {complete}")
    say(f"{kind}: {ours.height:,} windows of {ours['n'].sum():,} rows, equal in all three")
    return ours.height
