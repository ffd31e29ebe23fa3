"""Joins beside Flink SQL, Spark's own and plain loops: ``python -m benchmarks.joins [--quick] [--only NAME ...]``.

- ``interval``: of a topic of bids, cheap ones meet the dear ones of their bidder in the next ten seconds. Spark
  reads the topic twice, Headrace and Flink once; a row of the topic counts once.
- ``temporal``: every bid with the tier that its bidder had at the time. Tiers come from a topic of their own, which is
  read whole at the start; bids are counted.
- ``equal``: all systems must find the same rows, late ones among what they read, before any rate means something.
- ``lookup``: a service that takes 10 ms for each of many keys, beside a loop.
- ``growth``: the cost of a change of a joined view with a million rows a side beside that with 10,000.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.table import Table

import headrace as hr
from benchmarks.command import asked, tell
from benchmarks.comparison import Jobs, add_rates, check_equal, compare, rates_table
from benchmarks.flink.environment import environment
from benchmarks.flink.run import FLINK
from benchmarks.joins import flink_jobs, growth, jobs, lookup
from benchmarks.joins.kinds import INTERVAL, TEMPORAL
from benchmarks.joins.rows import Rows
from benchmarks.spark_runs import HEADRACE, SPARK, Place
from benchmarks.wheel.cases import Goal, say
from headrace.connectors.servers import running

JOBS = Jobs(jobs, flink_jobs)
GOALS = {
    INTERVAL: {FLINK: Goal("interval_vs_flink", 1.0), SPARK: Goal("interval_vs_spark", 2.0)},
    TEMPORAL: {FLINK: Goal("temporal_vs_flink", 2.0)},
}
FROM_KAFKA = ("equal", *GOALS)
MEASUREMENTS = (*FROM_KAFKA, "growth", "lookup")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    runs: int
    rows: int
    rows_for_spark: int
    """The first ones of the same: Spark's own join is slow, and fewer rows measure it as well."""
    batch: int
    """The warm-up is one batch."""
    changed: int
    """Rows of each table that a batch of its changes updates."""
    batches: int
    """Of changes, that are measured."""
    looked_up: int
    looped: int


FULL = Scale(3, 5_000_000, 3_000_000, 1_000_000, changed=2_000, batches=12, looked_up=40_000, looped=1_000)
QUICK = Scale(1, 1_500_000, 1_000_000, 500_000, changed=2_000, batches=6, looked_up=10_000, looped=400)
EQUAL = Rows("equal", 400_000, late_from=200_000)
EQUAL_BATCH = 100_000
WARM = Rows("warm", 200_000)
WARM_BATCH = 20_000


def main() -> None:
    """Measure, print the table, and end with one line of JSON."""
    wanted = asked("joins", __doc__, MEASUREMENTS)
    scale = QUICK if wanted.quick else FULL
    table = rates_table("Joins")
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder:
        place = Place(Path(folder))
        if set(wanted.names) & set(FROM_KAFKA):
            say("Flink's environment (the first time fetches some 700 MB)")
            environment()
            with running("kafka") as kafka:
                if "equal" in wanted.names:
                    _equal(table, kafka.address, place)
                kinds = [name for name in wanted.names if name in GOALS]
                if kinds:
                    ratios |= _rates(table, kinds, kafka.address, scale, place)
        if "growth" in wanted.names:
            ratios |= _growth(table, scale, place)
        if "lookup" in wanted.names:
            ratios |= _lookup(table, scale, place)
    tell("joins", [table], ratios)


def _equal(table: Table, servers: str, place: Place) -> None:
    """What all systems find must be the same."""
    source = EQUAL.in_kafka(servers, batch=EQUAL_BATCH)
    for kind, goals in GOALS.items():
        systems = (HEADRACE, *goals)
        # Flink lets all rows go at the end of the topic, the others those that time has passed.
        found = check_equal(JOBS, [kind], systems, source, pl.col("at") < EQUAL.closing_time, place)[kind]
        sums = f"{found.height:,} rows, times {found['found_at'].sum():,}, values {found['found'].sum():,}"
        say(f"{kind}: {sums}, equal in {', '.join(systems)}")
        table.add_row(kind, f"{found.height:,} rows, equal in {', '.join(systems)}", "", "", "", "")
    table.add_section()


def _rates(table: Table, kinds: Sequence[str], servers: str, scale: Scale, place: Place) -> dict[str, float]:
    everything = Rows("bids", scale.rows).in_kafka(servers, batch=scale.batch, warm_up=scale.batch)
    fewer = Rows("fewer_bids", scale.rows_for_spark).in_kafka(servers, batch=scale.batch, warm_up=scale.batch)
    warm = WARM.in_kafka(servers, batch=WARM_BATCH)
    ratios: dict[str, float] = {}
    for kind in kinds:
        sources = {HEADRACE: everything, **{system: fewer if system == SPARK else everything for system in GOALS[kind]}}
        compared = compare(JOBS, [kind], sources, warm, place, runs=scale.runs)[kind]
        ratios |= add_rates(table, kind, compared, GOALS[kind])
        table.add_section()
    return ratios


def _growth(table: Table, scale: Scale, place: Place) -> dict[str, float]:
    found = growth.measure_growth(place, runs=scale.runs, changed=scale.changed, batches=scale.batches)
    judged = (f"{found.ratio:.2f}", str(growth.GOAL), growth.GOAL.verdict(found.ratio))
    for rows, *verdict in ((growth.FEW, "", "", ""), (growth.MANY, *judged)):
        said = f"{found.rate(rows):,.0f} changes/s, {found.median(rows) * 1000:,.0f} ms for {found.changes:,}"
        table.add_row(f"table join, {rows:,} rows a side", said, "", *verdict)
    table.add_section()
    return {growth.GOAL.ratio: found.ratio}


def _lookup(table: Table, scale: Scale, place: Place) -> dict[str, float]:
    measured = []
    spark = hr.spark_session("benchmark", master="local[2]", settings={"spark.local.dir": str(place.root / "spark")})
    for turn in range(scale.runs):
        with place.work() as work:
            found = lookup.measure(spark, work, rows=scale.looked_up, loop_rows=scale.looped)
        measured.append(found)
        said = f"lookup {found.lookup:,.0f} rows/s, loop {found.loop:,.0f} rows/s"
        say(f"lookup, run {turn + 1} of {scale.runs}: {said}")
    spark.stop()
    ratio = statistics.median(found.lookup for found in measured) / statistics.median(found.loop for found in measured)
    goal = lookup.GOAL
    for what, *judged in (("lookup", "", "", ""), ("loop", f"{ratio:.1f}", str(goal), goal.verdict(ratio))):
        rates = [getattr(found, what) for found in measured]
        said = f"{what} {statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
        table.add_row("lookup, 10 ms a call", said, "", *judged)
    return {goal.ratio: ratio}


if __name__ == "__main__":
    main()
