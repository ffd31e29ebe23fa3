"""Systems in turns on the same rows: equal results first, then rates."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from benchmarks.flink.run import Steady
from benchmarks.wheel.cases import say
from benchmarks.windows.systems import FLINK, HEADRACE, SPARK, Place, Source, measure, results


@dataclass(frozen=True, slots=True)
class Compared:
    """All runs of a kind of windows, by system."""

    runs: Mapping[str, Sequence[Steady]]

    def median(self, system: str) -> float:
        """The middle rate."""
        return statistics.median(self._rates(system))

    def said(self, system: str) -> str:
        """The middle rate with the lowest and the highest."""
        rates = self._rates(system)
        return f"{system} {self.median(system):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"

    def processor(self, system: str) -> float:
        """Processor seconds for a million rows, the median."""
        return statistics.median(run.processor_seconds / run.rows * 1_000_000 for run in self.runs[system])

    def ratio(self, peer: str) -> float:
        """Our rate as a multiple of a peer's."""
        return self.median(HEADRACE) / self.median(peer)

    def _rates(self, system: str) -> list[float]:
        return [run.rows / run.seconds for run in self.runs[system]]


def compare(
    kinds: Sequence[str], sources: Mapping[str, Source], warm: Source, place: Place, *, runs: int
) -> dict[str, Compared]:
    """Run the systems in turns, each with its source."""
    found: dict[str, dict[str, list[Steady]]] = {kind: {system: [] for system in sources} for kind in kinds}
    for turn in range(runs):
        for system, source in sources.items():
            for kind, steady in measure(system, kinds, source, warm, place).items():
                found[kind][system].append(steady)
                say(f"{kind}, run {turn + 1} of {runs}: {system} {steady.rows / steady.seconds:,.0f} rows/s")
    return {kind: Compared(by_system) for kind, by_system in found.items()}


def check_equal(kinds: Sequence[str], source: Source, closed: int, place: Place) -> dict[str, int]:
    """How many windows end before ``closed`` (milliseconds); all systems must have the same, with the same values."""
    found = {system: results(system, kinds, source, place) for system in (HEADRACE, FLINK, SPARK)}
    numbers = {}
    for kind in kinds:
        # Flink closes every window at the end of the topic, Headrace and Spark those that time has passed.
        complete = {system: windows[kind].filter(pl.col("end") < closed) for system, windows in found.items()}
        ours = complete[HEADRACE]
        if ours.is_empty() or not all(windows.equals(ours) for windows in complete.values()):
            raise SystemExit(f"{kind}: the systems disagree, so no rate means anything: {complete}")
        say(f"{kind}: {ours.height:,} windows of {ours['n'].sum():,} rows, equal in all three")
        numbers[kind] = ours.height
    return numbers
