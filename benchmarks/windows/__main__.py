"""Windows from Kafka beside Flink SQL and Spark's own: ``python -m benchmarks.windows [--quick] [--only NAME ...]``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
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
    batch: int
    warm_up: int


FULL = Scale(runs=3, rows=5_000_000, batch=1_000_000, warm_up=2_000_000)
QUICK = Scale(runs=1, rows=1_500_000, batch=500_000, warm_up=500_000)
EQUAL = Rows("equal", 400_000, late_from=200_000)
EQUAL_BATCH = 100_000


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
        for name in chosen.only or MEASUREMENTS:
            benchmark.measure(name)
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
        self._sources: dict[str, Source] = {}
        self._rates = Table(
            "windows",
            "rows/s, median (lowest to highest)",
            "processor s a million",
            "ratio",
            "goal",
            "",
            title="Windows",
        )
        self.tables = [self._rates]
        self.ratios: dict[str, float] = {}

    def measure(self, name: str) -> None:
        """Make one of the measurements."""
        match name:
            case "equal":
                self._equal()
            case "overlap":
                self._overlap(measure_overlap(self._scale.runs))
            case "parquet":
                for kind in KINDS:
                    self._add(compare(kind, (HEADRACE, SPARK), self._files(), self._place, runs=1), "Parquet, ")
            case "parts":
                self._parts({kind: measure_parts(kind, self._topic(), self._place) for kind in KINDS})
            case _:
                systems = (HEADRACE, FLINK, SPARK)
                self._add(compare(name, systems, self._topic(), self._place, runs=self._scale.runs), "")

    def _equal(self) -> None:
        topic = EQUAL.to_topic(self._servers)
        source = Source(topic, self._servers, EQUAL.number, EQUAL_BATCH, EQUAL_BATCH)
        for kind in KINDS:
            windows = check_equal(kind, source, EQUAL.closing_time, self._place)
            self._rates.add_row(kind, f"{windows:,} windows, equal in all three", "", "", "", "")
        self._rates.add_section()

    def _topic(self) -> Source:
        if "topic" not in self._sources:
            scale = self._scale
            say(f"filling a topic with {scale.rows:,} rows")
            topic = Rows("bids", scale.rows).to_topic(self._servers)
            self._sources["topic"] = Source(topic, self._servers, scale.rows, scale.batch, scale.warm_up)
        return self._sources["topic"]

    def _files(self) -> Source:
        if "files" not in self._sources:
            scale = self._scale
            folder = Rows("files", scale.rows).to_files(self._place.root, scale.batch)
            self._sources["files"] = Source(str(folder), None, scale.rows, scale.batch, scale.warm_up)
        return self._sources["files"]

    def _add(self, compared: Compared, prefix: str) -> None:
        for system in compared.runs:
            label = f"{prefix}{compared.kind}", compared.said(system), f"{compared.processor(system):.2f}"
            if system == HEADRACE:
                self._rates.add_row(*label, "", "", "")
                continue
            ratio = compared.ratio(system)
            if prefix:
                self._rates.add_row(*label, f"{ratio:.2f}", "", "")
                continue
            goal = GOALS[compared.kind, system]
            self.ratios[goal.ratio] = ratio
            self._rates.add_row(*label, f"{ratio:.2f}", str(goal), "met" if goal.met(ratio) else "not met")
        self._rates.add_section()

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
