"""Patterns from Kafka beside Flink SQL: ``python -m benchmarks.patterns [--quick] [--only NAME ...]``."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.command import asked, tell
from benchmarks.comparison import Jobs, add_rates, check_equal, compare, rates_table
from benchmarks.flink.environment import environment
from benchmarks.flink.run import FLINK
from benchmarks.patterns import flink_jobs, jobs
from benchmarks.patterns.kinds import KINDS
from benchmarks.patterns.rows import Rows
from benchmarks.spark_runs import HEADRACE, Place
from benchmarks.wheel.cases import Goal, say
from headrace.connectors.servers import running

JOBS = Jobs(jobs, flink_jobs)
GOALS = {
    "selective": {FLINK: Goal("selective_vs_flink", 3.5)},
    "dense": {FLINK: Goal("dense_vs_flink", 4.5)},
}
SYSTEMS = (HEADRACE, FLINK)
MEASUREMENTS = ("equal", *KINDS)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    runs: int
    rows: int
    batch: int
    warm_up: int


FULL = Scale(runs=3, rows=8_000_000, batch=2_000_000, warm_up=2_000_000)
QUICK = Scale(runs=1, rows=2_000_000, batch=500_000, warm_up=500_000)
EQUAL = Rows("equal", 400_000, late_from=200_000)
EQUAL_BATCH = 100_000
WARM = Rows("warm", 200_000)
WARM_BATCH = 10_000


def main() -> None:
    """Measure, print the table, and end with one line of JSON."""
    wanted = asked("patterns", __doc__, MEASUREMENTS)
    say("Flink's environment (the first time fetches some 700 MB)")
    environment()
    scale = QUICK if wanted.quick else FULL
    table = rates_table("A B{1,3} C within 1 minute")
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder, running("kafka") as kafka:
        place = Place(Path(folder))
        if "equal" in wanted.names:
            source = EQUAL.in_kafka(kafka.address, batch=EQUAL_BATCH)
            for kind, matches in check_equal(JOBS, list(KINDS), SYSTEMS, source, pl.lit(True), place).items():
                sums = f"{matches['n'].sum():,} rows of step B, prices {matches['total'].sum():,}"
                say(f"{kind}: {matches.height:,} matches with {sums}, equal in both")
                table.add_row(kind, f"{matches.height:,} matches, equal in both", "", "", "", "")
            table.add_section()
        kinds = [name for name in wanted.names if name in KINDS]
        if kinds:
            source = Rows("bids", scale.rows).in_kafka(kafka.address, batch=scale.batch, warm_up=scale.warm_up)
            warm = WARM.in_kafka(kafka.address, batch=WARM_BATCH)
            found = compare(JOBS, kinds, dict.fromkeys(SYSTEMS, source), warm, place, runs=scale.runs)
            for kind, compared in found.items():
                ratios |= add_rates(table, kind, compared, GOALS[kind])
                table.add_section()
    tell("patterns", [table], ratios)


if __name__ == "__main__":
    main()
