"""Windows from Kafka beside Flink SQL and Spark's own: ``python -m benchmarks.windows [--quick] [--only NAME ...]``."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.table import Table

from benchmarks.command import asked, tell
from benchmarks.comparison import Jobs, add_rates, check_equal, compare, rates_table
from benchmarks.flink.environment import environment
from benchmarks.flink.run import FLINK
from benchmarks.spark_runs import HEADRACE, SPARK, Place, Source
from benchmarks.wheel.cases import Goal, say
from benchmarks.windows import flink_jobs, spark_jobs
from benchmarks.windows.kinds import KINDS
from benchmarks.windows.overlap import Overlap, measure_overlap
from benchmarks.windows.parts import Parts, measure_parts
from benchmarks.windows.rows import Rows
from headrace.connectors.servers import running

JOBS = Jobs(spark_jobs, flink_jobs)
GOALS = {
    "tumbling": {FLINK: Goal("tumbling_vs_flink", 1.3), SPARK: Goal("tumbling_vs_spark", 1.2)},
    "hopping": {FLINK: Goal("hopping_vs_flink", 1.5), SPARK: Goal("hopping_vs_spark", 1.2)},
    "session": {FLINK: Goal("session_vs_flink", 2.3), SPARK: Goal("session_vs_spark", 1.2)},
}
OVERLAP = Goal("hopping60_vs_tumbling60", 2.0, at_least=False)
TWO_WINDOWS = Goal("two_windows_vs_one", 1.3, at_least=False)
MEASUREMENTS = ("equal", *KINDS, "two_windows", "overlap", "parquet", "parts")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    runs: int
    rows: int
    rows_for_spark: int
    """The first ones of the same: Spark's own operators are slow, and fewer rows measure them as well."""
    batch: int
    warm_up: int


FULL = Scale(runs=3, rows=8_000_000, rows_for_spark=4_000_000, batch=2_000_000, warm_up=2_000_000)
QUICK = Scale(runs=1, rows=2_000_000, rows_for_spark=1_500_000, batch=500_000, warm_up=500_000)
EQUAL = Rows("equal", 400_000, late_from=200_000)
EQUAL_BATCH = 100_000
WARM = Rows("warm", 200_000)
WARM_BATCH = 10_000


def main() -> None:
    """Measure, print the tables, and end with one line of JSON."""
    wanted = asked("windows", __doc__, MEASUREMENTS)
    say("Flink's environment (the first time fetches some 700 MB)")
    environment()
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder, running("kafka") as kafka:
        benchmark = Benchmark(Place(Path(folder)), kafka.address, QUICK if wanted.quick else FULL)
        benchmark.measure(wanted.names)
    tell("windows", benchmark.tables, benchmark.ratios)


class Benchmark:
    """Measures by name, and keeps what it has found."""

    def __init__(self, place: Place, servers: str, scale: Scale) -> None:
        self._place = place
        self._servers = servers
        self._scale = scale
        self._topics: dict[str, Source] = {}
        self._rates = rates_table("Windows")
        self.tables = [self._rates]
        self.ratios: dict[str, float] = {}

    def measure(self, names: Sequence[str]) -> None:
        """Make some of the measurements."""
        kinds = [name for name in names if name in KINDS]
        if "equal" in names:
            self._equal()
        if kinds:
            self._kafka(kinds)
        if "two_windows" in names:
            self._two_windows()
        if "parquet" in names:
            self._parquet()
        if "overlap" in names:
            self._overlap(measure_overlap(self._scale.runs))
        if "parts" in names:
            source, warm = self._topic(self._scale.rows), self._warm()
            self._parts({kind: measure_parts(kind, source, warm, self._place) for kind in KINDS})

    def _equal(self) -> None:
        source = EQUAL.in_kafka(self._servers, batch=EQUAL_BATCH)
        # Flink closes every window at the end of the topic, Headrace and Spark those that time has passed.
        closed = pl.col("end") < EQUAL.closing_time
        found = check_equal(JOBS, list(KINDS), (HEADRACE, FLINK, SPARK), source, closed, self._place)
        for kind, windows in found.items():
            say(f"{kind}: {windows.height:,} windows of {windows['n'].sum():,} rows, equal in all three")
            self._rates.add_row(kind, f"{windows.height:,} windows, equal in all three", "", "", "", "")
        self._rates.add_section()

    def _kafka(self, kinds: Sequence[str]) -> None:
        scale = self._scale
        all_rows, fewer = self._topic(scale.rows), self._topic(scale.rows_for_spark)
        sources = {HEADRACE: all_rows, FLINK: all_rows, SPARK: fewer}
        found = compare(JOBS, kinds, sources, self._warm(), self._place, runs=scale.runs)
        for kind, compared in found.items():
            self.ratios |= add_rates(self._rates, kind, compared, GOALS[kind])
            self._rates.add_section()

    def _two_windows(self) -> None:
        """What a second window on the same topic adds to the processor time of one."""
        kinds = ["tumbling", spark_jobs.TWO_WINDOWS]
        sources = {HEADRACE: self._topic(self._scale.rows)}
        found = compare(JOBS, kinds, sources, self._warm(), self._place, runs=self._scale.runs)
        for kind, compared in found.items():
            add_rates(self._rates, kind, compared, {})
        one, two = (found[kind].processor(HEADRACE) for kind in kinds)
        self.ratios[TWO_WINDOWS.ratio] = two / one
        verdict = (f"{two / one:.2f}", str(TWO_WINDOWS), TWO_WINDOWS.verdict(two / one))
        self._rates.add_row("two windows / one", "", "", *verdict)
        self._rates.add_section()

    def _parquet(self) -> None:
        scale = self._scale
        folder = Rows("files", scale.rows_for_spark).to_files(self._place.root, scale.batch)
        files = Source(str(folder), None, scale.rows_for_spark, scale.batch, scale.warm_up)
        sources = dict.fromkeys((HEADRACE, SPARK), files)
        found = compare(JOBS, list(KINDS), sources, self._warm(), self._place, runs=1)
        for kind, compared in found.items():
            add_rates(self._rates, f"Parquet, {kind}", compared, {})
        self._rates.add_section()

    def _topic(self, rows: int) -> Source:
        return self._filled(Rows(f"bids_{rows}", rows), self._scale.batch, self._scale.warm_up)

    def _warm(self) -> Source:
        return self._filled(WARM, WARM_BATCH, 0)

    def _filled(self, rows: Rows, batch: int, warm_up: int) -> Source:
        if rows.name not in self._topics:
            self._topics[rows.name] = rows.in_kafka(self._servers, batch=batch, warm_up=warm_up)
        return self._topics[rows.name]

    def _overlap(self, found: Overlap) -> None:
        self.ratios[OVERLAP.ratio] = found.ratio
        table = Table("", "processor seconds", "with emission", "state bytes per open window and key", title="Overlap")
        for kind in found.seconds:
            held = f"{found.bytes_per_window[kind]:.0f}"
            table.add_row(kind, f"{found.seconds[kind]:.2f}", f"{found.with_emission[kind]:.2f}", held)
        table.add_row("ratio", f"{found.ratio:.2f} (goal {OVERLAP}, {OVERLAP.verdict(found.ratio)})", "", "")
        self.tables.append(table)

    def _parts(self, found: dict[str, Parts]) -> None:
        table = Table("", *found, title="Where Headrace's time goes: seconds for a million rows")
        for title, what in (("batch", "batch"), ("both tasks", "tasks"), ("processor", "processors")):
            names = sorted({part for parts in found.values() for part in getattr(parts, what)})
            for name in names:
                values = (f"{getattr(parts, what).get(name, 0.0):.3f}" for parts in found.values())
                table.add_row(f"{title}: {name}", *values)
            table.add_section()
        table.add_row("state, rows", *(f"{parts.state[0]:,}" for parts in found.values()))
        table.add_row("state, bytes a row", *(f"{parts.state[1] / parts.state[0]:.0f}" for parts in found.values()))
        self.tables.append(table)


if __name__ == "__main__":
    main()
