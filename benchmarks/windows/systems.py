"""Starts one system on one kind of windows, in a process of its own, and measures it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.flink import run as flink
from benchmarks.windows.flink_jobs import COLUMNS, read_results, sql_job

HEADRACE, FLINK, SPARK = "headrace", "flink", "spark"


@dataclass(frozen=True, slots=True)
class Source:
    """The rows, and where they are."""

    rows: str
    """A topic, or a folder of Parquet files."""
    servers: str | None
    """The broker, or None for files."""
    number: int
    batch: int
    """Rows that Spark and Headrace take at a time."""
    warm_up: int
    """Rows that are read before measuring begins."""

    @property
    def measured(self) -> range:
        """The numbers of the batches after the warm-up."""
        return range(self.warm_up // self.batch, self.number // self.batch)


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs keep their files while they last."""

    root: Path

    @contextmanager
    def work(self) -> Iterator[Path]:
        """A folder for one run."""
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self.root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def measure(system: str, kind: str, source: Source, place: Place) -> flink.Steady:
    """Run a system once; what it took for the rows after the warm-up."""
    with place.work() as work:
        if system == FLINK:
            assert source.servers is not None
            return flink.run(sql_job(kind, source.servers, source.rows, None), work).steady(source.warm_up)
        noted = run_on_spark(system, kind, source, work)
    batches = source.measured
    seconds = sum(noted["durations"][str(number)]["triggerExecution"] / 1000 for number in batches)
    before, after = (sum(noted["processors"][str(number)].values()) for number in (batches[0] - 1, batches[-1]))
    return flink.Steady(source.batch * len(batches), seconds, after - before)


def results(system: str, kind: str, source: Source, place: Place) -> pl.DataFrame:
    """The windows that a system emits, in order."""
    with place.work() as work:
        if system == FLINK:
            assert source.servers is not None
            flink.run(sql_job(kind, source.servers, source.rows, work / "results"), work)
            found = read_results(work / "results")
        else:
            run_on_spark(system, kind, source, work, results=work / "results")
            found = pl.read_parquet(work / "results" / "*.parquet")
    return found.select(COLUMNS).sort(COLUMNS)


def run_on_spark(
    system: str,
    kind: str,
    source: Source,
    work: Path,
    *,
    results: Path | None = None,
    settings: Mapping[str, str] | None = None,
    timeout: int = 600,
) -> dict[str, Any]:
    """Run Headrace or Spark's own operators once; what the process has noted."""
    order = {
        "system": system,
        "kind": kind,
        "checkpoint": str(work / "checkpoint"),
        "batch": source.batch,
        "servers": source.servers,
        "rows": source.rows,
        "results": None if results is None else str(results),
        "result": str(work / "result.json"),
        "settings": {"spark.local.dir": str(work / "spark"), **(settings or {})},
    }
    command = [sys.executable, "-m", "benchmarks.windows.measured_run", json.dumps(order)]
    with (work / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
    if status != 0:
        raise RuntimeError(f"{system} failed:\n{(work / 'output.txt').read_text()[-4000:]}")
    noted: dict[str, Any] = json.loads((work / "result.json").read_text())
    return noted
