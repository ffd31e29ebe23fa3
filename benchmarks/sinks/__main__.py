"""Sinks beside the plain way of doing the same, in turns on the same rows; ``--quick`` for a first impression."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import headrace as hr
from benchmarks.sinks.cases import Case, Compared, Way, compare
from benchmarks.sinks.delta import delta_case
from benchmarks.sinks.kafka import kafka_case
from benchmarks.sinks.postgres import append_case, upsert_case
from benchmarks.sinks.redis import redis_case
from benchmarks.sinks.rows import Rows, make_rows
from headrace.services.jars import jars


@dataclass(frozen=True, slots=True)
class Measurement:
    """How a case is made, and how many rows its batches have."""

    case: Callable[[Rows, Path], AbstractContextManager[Case]]
    rows: int


MEASUREMENTS = {
    "kafka": Measurement(kafka_case, 500_000),
    "postgres": Measurement(append_case, 500_000),
    "postgres_upsert": Measurement(upsert_case, 500_000),
    "delta": Measurement(delta_case, 1_000_000),
    # The slowest one, and the server keeps all of it in memory.
    "redis": Measurement(redis_case, 200_000),
}
RUNS = 3
QUICK_ROWS = 20_000


def main() -> None:
    """Measure, print the table, and end with one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sinks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small run of each")
    parser.add_argument("--only", nargs="*", choices=list(MEASUREMENTS), help="the measurements to make")
    chosen = parser.parse_args()
    # So that a stopped benchmark stops its servers and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    table = Table("sink", "way", "rows/s, median (lowest to highest)", "ratio", "goal", "", title="Sinks")
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder:
        spark = _session(Path(folder))
        for name in chosen.only or MEASUREMENTS:
            measurement = MEASUREMENTS[name]
            rows = make_rows(spark, QUICK_ROWS if chosen.quick else measurement.rows)
            with measurement.case(rows, Path(folder)) as case:
                compared = compare(case, rows.number, 1 if chosen.quick else RUNS)
            rows.kept.unpersist()
            ratios[case.ratio] = round(compared.ratio, 3)
            _add(table, name, compared)
        spark.stop()
    Console(width=150).print(table)
    print(json.dumps({"benchmark": "sinks", "ratios": ratios}))


def _session(folder: Path) -> SparkSession:
    settings = {
        "spark.jars": ",".join(str(jar) for jar in jars("jdbc-postgres")),
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    return hr.spark_session("sinks", master="local[2]", connectors=("kafka", "delta"), settings=settings)


def _add(table: Table, name: str, compared: Compared) -> None:
    case = compared.case
    table.add_row(name, case.ours.name, _rates(compared, case.ours), "", "", "")
    for peer in case.peers:
        if peer is not compared.fastest:
            ratio = compared.median(case.ours) / compared.median(peer)
            table.add_row("", peer.name, _rates(compared, peer), f"{ratio:.2f}", "", "")
            continue
        goal = compared.goal
        wanted = "" if goal is None else f">= {goal:.2f}"
        met = "" if goal is None else "met" if compared.ratio >= goal else "not met"
        table.add_row("", peer.name, _rates(compared, peer), f"{compared.ratio:.2f}", wanted, met)
    table.add_section()


def _rates(compared: Compared, way: Way) -> str:
    rates = compared.rates[way.name]
    return f"{compared.median(way):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


if __name__ == "__main__":
    main()
