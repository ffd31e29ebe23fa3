"""Windows from Kafka beside Flink SQL and Spark's own: ``python -m benchmarks.windows [--quick] [--only NAME ...]``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.flink.environment import environment
from benchmarks.wheel.cases import Goal, say
from benchmarks.windows.comparison import Compared, check_equal, compare
from benchmarks.windows.kinds import KINDS
from benchmarks.windows.overlap import Overlap, measure_overlap
from benchmarks.windows.parts import Parts, measure_parts
from benchmarks.windows.rows import Rows
from benchmarks.windows.systems import FLINK, HEADRACE, SPARK, Place, Source
from headrace.services import running

GOALS = {
    ("tumbling", FLINK): Goal("tumbling_vs_flink", 1.2),
    ("hopping", FLINK): Goal("hopping_vs_flink", 1.5),
    ("session", FLINK): Goal("session_vs_flink", 2.0),
    ("tumbling", SPARK): Goal("tumbling_vs_spark", 1.2),
    ("hopping", SPARK): Goal("hopping_vs_spark", 1.2),
    ("session", SPARK): Goal("session_vs_spark", 1.2),
}
OVERLAP = Goal("hopping60_vs_tumbling60", 2.0, at_least=False)
MEASUREMENTS = ("equal", *KINDS, "overlap", "parquet", "parts")


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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.windows", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short run of each, for a first impression")
    parser.add_argument("--only", nargs="*", choices=MEASUREMENTS, help="the measurements to make")
    chosen = parser.parse_args()
    # So that a stopped benchmark stops its servers and runs and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    say("Flink's environment (the first time fetches some 700 MB)")
    environment()
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder, running("kafka") as kafka:
        benchmark = Benchmark(Place(Path(folder)), kafka.address, QUICK if chosen.quick else FULL)
        benchmark.measure(chosen.only or MEASUREMENTS)
    for table in benchmark.tables:
        Console(width=150).print(table)
    ratios = {name: round(value, 3) for name, value in benchmark.ratios.items()}
    print(json.dumps({"benchmark": "windows", "ratios": ratios}))


class Benchmark:
    """Measures by name, and keeps what it has found."""

    def __init__(self, place: Place, servers: str, scale: Scale) -> None:
        self._place = place
        self._servers = servers
        self._scale = scale
        self._topics: dict[str, Source] = {}
        columns = ("windows", "rows/s, median (lowest to highest)", "processor s a million", "ratio", "goal", "")
        self._rates = Table(*columns, title="Windows")
        self.tables = [self._rates]
        self.ratios: dict[str, float] = {}

    def measure(self, names: Sequence[str]) -> None:
        """Make some of the measurements."""
        kinds = [name for name in names if name in KINDS]
        if "equal" in names:
            self._equal()
        if kinds:
            self._kafka(kinds)
        if "parquet" in names:
            self._parquet()
        if "overlap" in names:
            self._overlap(measure_overlap(self._scale.runs))
        if "parts" in names:
            source, warm = self._topic(self._scale.rows), self._warm()
            self._parts({kind: measure_parts(kind, source, warm, self._place) for kind in KINDS})

    def _equal(self) -> None:
        source = Source(EQUAL.to_topic(self._servers), self._servers, EQUAL.number, EQUAL_BATCH)
        for kind, windows in check_equal(list(KINDS), source, EQUAL.closing_time, self._place).items():
            self._rates.add_row(kind, f"{windows:,} windows, equal in all three", "", "", "", "")
        self._rates.add_section()

    def _kafka(self, kinds: Sequence[str]) -> None:
        scale = self._scale
        all_rows, fewer = self._topic(scale.rows), self._topic(scale.rows_for_spark)
        sources = {HEADRACE: all_rows, FLINK: all_rows, SPARK: fewer}
        found = compare(kinds, sources, self._warm(), self._place, runs=scale.runs)
        for kind, compared in found.items():
            for system in sources:
                goal = GOALS.get((kind, system))
                if goal is not None:
                    self.ratios[goal.ratio] = compared.ratio(system)
                self._add(kind, system, compared, goal)
            self._rates.add_section()

    def _parquet(self) -> None:
        scale = self._scale
        folder = Rows("files", scale.rows_for_spark).to_files(self._place.root, scale.batch)
        files = Source(str(folder), None, scale.rows_for_spark, scale.batch, scale.warm_up)
        found = compare(list(KINDS), dict.fromkeys((HEADRACE, SPARK), files), self._warm(), self._place, runs=1)
        for kind, compared in found.items():
            for system in (HEADRACE, SPARK):
                self._add(f"Parquet, {kind}", system, compared, None)
        self._rates.add_section()

    def _topic(self, rows: int) -> Source:
        return self._filled(Rows(f"bids_{rows}", rows), self._scale.batch, self._scale.warm_up)

    def _warm(self) -> Source:
        return self._filled(WARM, WARM_BATCH, 0)

    def _filled(self, rows: Rows, batch: int, warm_up: int) -> Source:
        if rows.name not in self._topics:
            say(f"filling a topic with {rows.number:,} rows")
            topic = rows.to_topic(self._servers)
            self._topics[rows.name] = Source(topic, self._servers, rows.number, batch, warm_up)
        return self._topics[rows.name]

    def _add(self, label: str, system: str, compared: Compared, goal: Goal | None) -> None:
        row = [label, compared.said(system), f"{compared.processor(system):.2f}"]
        if system != HEADRACE:
            ratio = compared.ratio(system)
            row.append(f"{ratio:.2f}")
            if goal is not None:
                row += [str(goal), "met" if goal.met(ratio) else "not met"]
        self._rates.add_row(*row)

    def _overlap(self, found: Overlap) -> None:
        self.ratios[OVERLAP.ratio] = found.ratio
        table = Table("", "processor seconds", "with emission", "state bytes per open window and key", title="Overlap")
        for kind in found.seconds:
            held = f"{found.bytes_per_window[kind]:.0f}"
            table.add_row(kind, f"{found.seconds[kind]:.2f}", f"{found.with_emission[kind]:.2f}", held)
        met = "met" if OVERLAP.met(found.ratio) else "not met"
        table.add_row("ratio", f"{found.ratio:.2f} (goal {OVERLAP}, {met})", "", "")
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
