"""Patterns from Kafka beside Flink SQL: ``python -m benchmarks.patterns [--quick] [--only NAME ...]``."""

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
from benchmarks.flink.run import Steady
from benchmarks.patterns.kinds import KINDS
from benchmarks.patterns.rows import Rows
from benchmarks.patterns.systems import measure, results
from benchmarks.wheel.cases import Goal, say
from benchmarks.windows.comparison import Compared
from benchmarks.windows.systems import FLINK, HEADRACE, Place, Source
from headrace.services import running

GOALS = {"selective": Goal("selective_vs_flink", 3.0), "dense": Goal("dense_vs_flink", 1.0)}
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patterns", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short run of each, for a first impression")
    parser.add_argument("--only", nargs="*", choices=MEASUREMENTS, help="the measurements to make")
    chosen = parser.parse_args()
    # So that a stopped benchmark stops its servers and runs and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    say("Flink's environment (the first time fetches some 700 MB)")
    environment()
    names = chosen.only or MEASUREMENTS
    columns = ("pattern", "rows/s, median (lowest to highest)", "processor s a million", "ratio", "goal", "")
    table = Table(*columns, title="A B{1,3} C within 1 minute")
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder, running("kafka") as kafka:
        place = Place(Path(folder))
        if "equal" in names:
            for kind, matches in check_equal(kafka.address, place).items():
                table.add_row(kind, f"{matches:,} matches, equal in both", "", "", "", "")
            table.add_section()
        kinds = [name for name in names if name in KINDS]
        if kinds:
            for kind, compared in compare(kinds, kafka.address, place, QUICK if chosen.quick else FULL).items():
                goal = GOALS[kind]
                ratios[goal.ratio] = compared.ratio(FLINK)
                _add(table, kind, compared, goal)
    Console(width=150).print(table)
    rounded = {name: round(value, 3) for name, value in ratios.items()}
    print(json.dumps({"benchmark": "patterns", "ratios": rounded}))


def check_equal(servers: str, place: Place) -> dict[str, int]:
    """How many matches there are of each kind; both systems must find the same."""
    source = _filled(EQUAL, servers, EQUAL_BATCH, 0)
    found = {system: results(system, list(KINDS), source, place) for system in SYSTEMS}
    numbers = {}
    for kind, ours in found[HEADRACE].items():
        if ours.is_empty() or not found[FLINK][kind].equals(ours):
            raise SystemExit(f"{kind}: the systems disagree, so no rate means anything: {found}")
        sums = f"{ours['n'].sum():,} rows of step B, prices {ours['total'].sum():,}"
        say(f"{kind}: {ours.height:,} matches with {sums}, equal in both")
        numbers[kind] = ours.height
    return numbers


def compare(kinds: Sequence[str], servers: str, place: Place, scale: Scale) -> dict[str, Compared]:
    """Run the systems in turns on one topic."""
    source = _filled(Rows("bids", scale.rows), servers, scale.batch, scale.warm_up)
    warm = _filled(WARM, servers, WARM_BATCH, 0)
    found: dict[str, dict[str, list[Steady]]] = {kind: {system: [] for system in SYSTEMS} for kind in kinds}
    for turn in range(scale.runs):
        for system in SYSTEMS:
            for kind, steady in measure(system, kinds, source, warm, place).items():
                found[kind][system].append(steady)
                say(f"{kind}, run {turn + 1} of {scale.runs}: {system} {steady.rows / steady.seconds:,.0f} rows/s")
    return {kind: Compared(by_system) for kind, by_system in found.items()}


def _filled(rows: Rows, servers: str, batch: int, warm_up: int) -> Source:
    say(f"filling a topic with {rows.number:,} rows")
    return Source(rows.to_topic(servers), servers, rows.number, batch, warm_up)


def _add(table: Table, kind: str, compared: Compared, goal: Goal) -> None:
    ratio = compared.ratio(FLINK)
    verdict = "met" if goal.met(ratio) else "not met"
    for system, *judged in ((HEADRACE, "", "", ""), (FLINK, f"{ratio:.2f}", str(goal), verdict)):
        table.add_row(kind, compared.said(system), f"{compared.processor(system):.2f}", *judged)
    table.add_section()


if __name__ == "__main__":
    main()
