"""What a change of a joined view costs when its tables are large, beside what it costs when they are small."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.joins import tables
from benchmarks.joins.tables import Changes, Order
from benchmarks.spark_runs import HEADRACE, Place, SparkRun, run_on_spark
from benchmarks.wheel.cases import Goal, say

GOAL = Goal("table_join_growth", 1.15, at_least=False)
FEW, MANY = 10_000, 1_000_000
WARM_BATCHES = 12
SKIPPED = 5
"""Batches that are not counted: the first fills both tables, the next ones compile and fold."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The seconds of a batch, the median of each run, by the number of rows of each table."""

    seconds: Mapping[int, Sequence[float]]
    changes: int
    """Of a batch, of both tables together."""

    def median(self, rows: int) -> float:
        """The middle run."""
        return statistics.median(self.seconds[rows])

    def rate(self, rows: int) -> float:
        """Changes a second."""
        return self.changes / self.median(rows)

    @property
    def ratio(self) -> float:
        """How many times as much a change costs in the large tables."""
        return self.median(MANY) / self.median(FEW)


def measure_growth(place: Place, *, runs: int, changed: int, batches: int) -> Growth:
    """Run both sizes in turns; every batch updates ``changed`` rows of each table.

    Both run in one process behind a run of many small batches, by which the JVM compiles what every batch does.
    """
    folders = {rows: Changes(rows, changed, SKIPPED + batches - 1).write(place.root) for rows in (FEW, MANY)}
    warm = Changes(FEW // 2, changed, WARM_BATCHES).write(place.root)
    found: dict[int, list[float]] = {rows: [] for rows in folders}
    for turn in range(runs):
        with place.work() as work:
            orders = [_order(warm, work / "warm"), *(_order(folder, work / str(n)) for n, folder in folders.items())]
            _, *shown = run_on_spark(tables, HEADRACE, orders, work)
        for rows, run in zip(folders, shown, strict=True):
            seconds = _seconds(run, batches)
            found[rows].append(statistics.median(seconds))
            spread = f"{min(seconds) * 1000:,.0f} to {max(seconds) * 1000:,.0f}"
            said = f"{rows:,} rows a side, {batches} batches, median {found[rows][-1] * 1000:,.0f} ms ({spread})"
            say(f"growth, run {turn + 1} of {runs}: {said}")
    return Growth(found, 2 * changed)


def _order(folder: Path, checkpoint: Path) -> Order:
    return Order(str(folder), str(checkpoint))


def _seconds(run: SparkRun, batches: int) -> list[float]:
    moments = run.committed[SKIPPED - 1 : SKIPPED + batches]
    return [after - before for before, after in pairwise(moments)]
