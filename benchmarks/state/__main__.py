"""Keyed state and timers beside Spark's own: ``python -m benchmarks.state [--quick] [--only NAME ...]``."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from benchmarks.command import asked, tell
from benchmarks.comparison import Compared, add_rates
from benchmarks.flink.run import Steady
from benchmarks.spark_runs import HEADRACE, SPARK, Place
from benchmarks.state.inputs import CLOSING, Silences
from benchmarks.state.jobs import FRAMES
from benchmarks.state.systems import measure, results, small_batches
from benchmarks.wheel.cases import Goal, say
from benchmarks.wheel.inputs import Inputs

PROCESS = Goal("process_vs_spark", 5.5)
BY_ROW = "headrace, rows"
VECTORISED = {BY_ROW: Goal("vectorised_vs_process", 3), SPARK: Goal("vectorised_vs_spark", 12)}
GROWTH = Goal("timer_growth", 1.15, at_least=False)
MEASUREMENTS = ("equal", "process", "vectorised", "growth")
FEW, MANY = 10_000, 1_000_000
SKIPPED = 6
"""The first batch fills the state, the second takes its rows and sets the timers; the next ones compile and fold."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    runs: int
    rows: int
    """Of a batch."""
    batches: int
    batches_for_spark: int
    """The first ones of the same files."""
    small_batches: int

    @property
    def inputs(self) -> dict[str, Inputs]:
        """The files of each system: one batch to warm up, then those that count."""
        ours = Inputs("process", FEW, (self.rows,) * (1 + self.batches), minutes=1)
        fewer = (self.rows,) * (1 + self.batches_for_spark)
        return {HEADRACE: ours, SPARK: replace(ours, name="process_short", batches=fewer)}

    def with_timers(self, keys: int) -> Inputs:
        """One batch that brings every key, then small ones."""
        batches = (keys, *(1_000,) * (SKIPPED - 1 + self.small_batches))
        return Inputs(f"timers_{keys}", keys, batches, minutes=1, covering=True)


FULL = Scale(runs=3, rows=1_000_000, batches=6, batches_for_spark=2, small_batches=20)
QUICK = Scale(runs=1, rows=300_000, batches=3, batches_for_spark=1, small_batches=15)
# A prime number of keys: every thousandth row is late, and else these would be all rows of a few keys.
EQUAL = Silences("silences", 997, (20_000,) * CLOSING.stop, covering=True)
WARM = Inputs("warm", FEW, (1_000,) * 12, minutes=1)


def main() -> None:
    """Measure, print the table, and end with one line of JSON."""
    wanted = asked("state", __doc__, MEASUREMENTS)
    scale, names = QUICK if wanted.quick else FULL, wanted.names
    columns = ("", "median (lowest to highest)", "processor s a million", "ratio", "goal", "")
    table = Table(*columns, title="A count and a timer for each key")
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder:
        place = Place(Path(folder))
        if "equal" in names:
            table.add_row("results", f"{check_equal(place):,} rows, equal in all", "", "", "", "")
            table.add_section()
        if "process" in names:
            ratios |= _process(table, scale, place)
            table.add_section()
        if "vectorised" in names:
            ratios |= _vectorised(table, scale, place)
            table.add_section()
        if "growth" in names:
            ratios[GROWTH.ratio] = _growth(table, scale, place)
    tell("state", [table], ratios)


def check_equal(place: Place) -> int:
    """How many rows all systems tell of keys that fall silent and come back; they must be the same."""
    found = {system: results(system, EQUAL, place) for system in (HEADRACE, FRAMES, SPARK)}
    ours = found[HEADRACE]
    silences = ours["silent_at"].count()
    if silences in (0, ours.height) or not all(each.equals(ours) for each in found.values()):
        raise SystemExit(f"the systems disagree, so no rate means anything: {found}")
    say(f"{ours.height:,} rows, {silences:,} of them silences, counts {ours['n'].sum():,}, equal in all")
    return ours.height


def _process(table: Table, scale: Scale, place: Place) -> dict[str, float]:
    runs = _measured("process", (HEADRACE, SPARK), scale, place)
    return add_rates(table, f"rows/s, {FEW:,} keys", Compared(runs), {SPARK: PROCESS})


def _vectorised(table: Table, scale: Scale, place: Place) -> dict[str, float]:
    """A process over frames beside the same one over rows, and beside Spark's."""
    runs = _measured("vectorised", (FRAMES, HEADRACE, SPARK), scale, place)
    compared = Compared({HEADRACE: runs[FRAMES], BY_ROW: runs[HEADRACE], SPARK: runs[SPARK]})
    return add_rates(table, f"rows/s as frames, {FEW:,} keys", compared, VECTORISED)


def _measured(name: str, systems: Sequence[str], scale: Scale, place: Place) -> dict[str, list[Steady]]:
    """Runs of the systems in turns."""
    runs: dict[str, list[Steady]] = {system: [] for system in systems}
    for turn in range(scale.runs):
        for system in systems:
            steady = measure(system, scale.inputs[SPARK if system == SPARK else HEADRACE], WARM, place)
            runs[system].append(steady)
            say(f"{name}, run {turn + 1} of {scale.runs}: {system} {steady.rows / steady.seconds:,.0f} rows/s")
    return runs


def _growth(table: Table, scale: Scale, place: Place) -> float:
    """The time of a small batch with many live timers as a multiple of that with few."""
    found: dict[int, list[float]] = {FEW: [], MANY: []}
    for turn in range(scale.runs):
        for keys, medians in found.items():
            seconds = small_batches(scale.with_timers(keys), WARM, place, skip=SKIPPED)
            medians.append(statistics.median(seconds))
            spread = f"{min(seconds) * 1000:,.0f} to {max(seconds) * 1000:,.0f}"
            said = f"{keys:,} timers, {len(seconds)} batches, median {medians[-1] * 1000:,.0f} ms ({spread})"
            say(f"growth, run {turn + 1} of {scale.runs}: {said}")
    middle = {keys: statistics.median(medians) for keys, medians in found.items()}
    ratio = middle[MANY] / middle[FEW]
    for keys, *judged in ((FEW, "", "", ""), (MANY, f"{ratio:.2f}", str(GROWTH), GROWTH.verdict(ratio))):
        low, high = min(found[keys]) * 1000, max(found[keys]) * 1000
        said = f"{middle[keys] * 1000:,.0f} ms ({low:,.0f} to {high:,.0f})"
        table.add_row(f"batch of 1,000 rows, {keys:,} timers", said, "", *judged)
    return ratio


if __name__ == "__main__":
    main()
