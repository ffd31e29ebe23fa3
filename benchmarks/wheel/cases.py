"""The cases: what is measured, how much of it, and what is asked of the ratios."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.wheel.inputs import Inputs
from benchmarks.wheel.systems import Measured, System, Watch, run


@dataclass(frozen=True, slots=True)
class Goal:
    """What a ratio is asked to be: at least, or at most, a number."""

    ratio: str
    bound: float
    at_least: bool = True

    def met(self, value: float) -> bool:
        """Whether a value is good enough."""
        return value >= self.bound if self.at_least else value <= self.bound

    def verdict(self, value: float) -> str:
        """The same in words."""
        return "met" if self.met(value) else "not met"

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A system in a comparison with the files it gets; the first ``skip`` batches are not counted."""

    label: str
    system: System
    inputs: Inputs
    skip: int = 1
    by_median: bool = False
    """Whether the median of the batches counts, which all have as many rows, and not their sum."""

    def rate(self, measured: Measured) -> float:
        """Rows a second after the first batches."""
        rows, seconds = self.inputs.batches[self.skip :], measured.seconds[self.skip :]
        counted = (rows[0], statistics.median(seconds)) if self.by_median else (sum(rows), sum(seconds))
        return counted[0] / self.system.share / counted[1]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Systems run in turns; each goal is the first one's rate as a multiple of another's."""

    name: str
    entries: tuple[Entry, ...]
    goals: Mapping[str, Goal]
    """By the label of the entry that is compared with."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The rates of a comparison, the medians of all runs."""

    comparison: Comparison
    rates: Mapping[str, float]
    spread: Mapping[str, tuple[float, float]]

    def ratios(self) -> dict[str, float]:
        """The ratio of each goal by its name."""
        first = self.rates[self.comparison.entries[0].label]
        return {
            goal.ratio: first / self.rates[label] if goal.at_least else self.rates[label] / first
            for label, goal in self.comparison.goals.items()
        }


def compare(comparison: Comparison, root: Path, runs: int) -> Compared:
    """Run the systems of a comparison in turns."""
    found: dict[str, list[float]] = {entry.label: [] for entry in comparison.entries}
    for turn in range(runs):
        for entry in comparison.entries:
            measured = run(entry.system, files(entry.inputs, root), len(entry.inputs.batches))
            rate = entry.rate(measured)
            found[entry.label].append(rate)
            say(f"{comparison.name}, run {turn + 1} of {runs}: {entry.label} {rate:,.0f} rows/s")
    return Compared(
        comparison,
        {label: statistics.median(rates) for label, rates in found.items()},
        {label: (min(rates), max(rates)) for label, rates in found.items()},
    )


def check_equal(inputs: Inputs, systems: tuple[System, ...], root: Path) -> list[str]:
    """Run every system on a small case and compare the digests of their results."""
    digests: dict[str, list[str]] = {}
    for system in systems:
        measured = run(system, files(inputs, root), len(inputs.batches), Watch(digest=True))
        assert measured.digest is not None
        digests[system.name] = measured.digest
        say(f"results of {system.name}: windows, rows, sum, hash = {', '.join(measured.digest)}")
    first = digests[systems[0].name]
    if any(digest != first for digest in digests.values()) or int(first[0]) == 0:
        raise SystemExit(f"the systems disagree, so no rate means anything: {digests}")
    return first


def files(inputs: Inputs, root: Path) -> Path:
    """The folder of a case's files, written when it is asked for first."""
    folder = root / inputs.name
    return folder if folder.exists() else inputs.write(root)


def say(text: str) -> None:
    """Progress for the person who waits."""
    load = os.getloadavg()[0]
    print(f"[{time.strftime('%H:%M:%S')} load {load:.1f}] {text}", file=sys.stderr, flush=True)
