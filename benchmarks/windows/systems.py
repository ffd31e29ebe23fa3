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

import polars as pl

from benchmarks.flink.run import Steady
from benchmarks.flink.run import run as run_flink
from benchmarks.windows.flink_jobs import COLUMNS, read_results, sql_job
from benchmarks.windows.processors import Processors

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


def measure(system: str, kind: str, source: Source, place: Place) -> Steady:
    """Run a system once; what it took for the rows after the warm-up."""
    with place.work() as work:
        if system == FLINK:
            assert source.servers is not None
            return run_flink(sql_job(kind, source.servers, source.rows, None), work).steady(source.warm_up)
        return run_on_spark(system, kind, source, work).steady(source)


def results(system: str, kind: str, source: Source, place: Place) -> pl.DataFrame:
    """The windows that a system emits, in order."""
    with place.work() as work:
        if system == FLINK:
            assert source.servers is not None
            run_flink(sql_job(kind, source.servers, source.rows, work / "results"), work)
            found = read_results(work / "results")
        else:
            run_on_spark(system, kind, source, work, results=work / "results")
            found = pl.read_parquet(work / "results" / "*.parquet")
    return found.select(COLUMNS).sort(COLUMNS)


@dataclass(frozen=True, slots=True)
class SparkRun:
    """What one run showed: when each batch was committed, and the processor time used until then."""

    committed: tuple[float, ...]
    processors: tuple[dict[str, float], ...]

    def steady(self, source: Source) -> Steady:
        """From the commit of the last batch of the warm-up to that of the last full one."""
        batches = source.measured
        began, ended = batches[0] - 1, batches[-1]
        return Steady(
            source.batch * len(batches),
            self.committed[ended] - self.committed[began],
            sum(self.processors[ended].values()) - sum(self.processors[began].values()),
        )


def run_on_spark(
    system: str,
    kind: str,
    source: Source,
    work: Path,
    *,
    results: Path | None = None,
    durations: Path | None = None,
    settings: Mapping[str, str] | None = None,
    timeout: int = 600,
) -> SparkRun:
    """Run Headrace or Spark's own operators once; ``durations`` is where Spark's own figures go, if they are wanted."""
    order = {
        "system": system,
        "kind": kind,
        "checkpoint": str(work / "checkpoint"),
        "batch": source.batch,
        "servers": source.servers,
        "rows": source.rows,
        "results": None if results is None else str(results),
        "durations": None if durations is None else str(durations),
        "settings": {"spark.local.dir": str(work / "spark"), **(settings or {})},
    }
    command = [sys.executable, "-m", "benchmarks.windows.measured_run", json.dumps(order)]
    with (work / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            with Processors(process.pid) as processors:
                status = process.wait(timeout)
        finally:
            process.kill()
    if status != 0:
        raise RuntimeError(f"{system} failed:\n{(work / 'output.txt').read_text()[-4000:]}")
    commits = work / "checkpoint" / ("windows/spark/commits" if system == HEADRACE else "commits")
    # Spark writes this file as the last thing of a batch.
    files = sorted((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    moments = tuple(file.stat().st_mtime for file in files)
    return SparkRun(moments, tuple(processors.at(moment) for moment in moments))
