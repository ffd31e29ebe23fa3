"""Starts the systems in processes of their own and measures them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from benchmarks.flink.run import FlinkRun, Steady
from benchmarks.flink.run import run as run_flink
from benchmarks.windows.flink_jobs import COLUMNS, read_results, sql_job
from benchmarks.windows.processors import Processors
from benchmarks.windows.spark_jobs import Order

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
    warm_up: int = 0
    """Rows that are read before measuring begins."""

    @property
    def measured(self) -> range:
        """The numbers of the batches after the warm-up."""
        return range(self.warm_up // self.batch, self.number // self.batch)

    def order(self, kind: str, checkpoint: Path, results: Path | None = None) -> Order:
        """A run over these rows on Spark."""
        kept = None if results is None else str(results)
        return Order(kind, str(checkpoint), self.batch, self.servers, self.rows, kept)


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


def measure(system: str, kinds: Sequence[str], source: Source, warm: Source, place: Place) -> dict[str, Steady]:
    """What each kind took for the rows after the warm-up.

    A process on Spark first runs many small batches of ``warm``: what a batch costs before its first row is compiled
    by the number of batches, not of rows. Then it runs the kinds one after the other. Flink has one process a kind.
    """
    if system == FLINK:
        return {kind: _flink(kind, source, place).steady(source.warm_up) for kind in kinds}
    with place.work() as work:
        orders = [warm.order(kinds[0], work / "warm")]
        orders += [source.order(kind, work / kind) for kind in kinds]
        _, *runs = run_on_spark(system, orders, work)
        return {kind: run.steady(source) for kind, run in zip(kinds, runs, strict=True)}


def results(system: str, kinds: Sequence[str], source: Source, place: Place) -> dict[str, pl.DataFrame]:
    """The windows that a system emits, in order."""
    with place.work() as work:
        if system == FLINK:
            for kind in kinds:
                _flink(kind, source, place, results=work / f"{kind}.results")
            found = {kind: read_results(work / f"{kind}.results") for kind in kinds}
        else:
            run_on_spark(system, [source.order(kind, work / kind, work / f"{kind}.results") for kind in kinds], work)
            found = {kind: pl.read_parquet(work / f"{kind}.results" / "*.parquet") for kind in kinds}
    return {kind: windows.select(COLUMNS).sort(COLUMNS) for kind, windows in found.items()}


def _flink(kind: str, source: Source, place: Place, *, results: Path | None = None) -> FlinkRun:
    assert source.servers is not None
    with place.work() as work:
        return run_flink(sql_job(kind, source.servers, source.rows, results), work)


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
    orders: Sequence[Order],
    work: Path,
    *,
    durations: Path | None = None,
    settings: Mapping[str, str] | None = None,
    timeout: int = 900,
) -> list[SparkRun]:
    """Run Headrace or Spark's own operators, one order after the other in one process.

    ``durations`` is where Spark's own figures of the last one go, if they are wanted.
    """
    given = {
        "system": system,
        "orders": [asdict(order) for order in orders],
        "durations": None if durations is None else str(durations),
        "settings": {"spark.local.dir": str(work / "spark"), **(settings or {})},
    }
    command = [sys.executable, "-m", "benchmarks.windows.measured_run", json.dumps(given)]
    with (work / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            with Processors(process.pid) as processors:
                status = process.wait(timeout)
        finally:
            process.kill()
    if status != 0:
        raise RuntimeError(f"{system} failed:\n{(work / 'output.txt').read_text()[-4000:]}")
    runs = []
    for order in orders:
        # Spark writes this file as the last thing of a batch.
        commits = Path(order.checkpoint) / ("windows/spark/commits" if system == HEADRACE else "commits")
        files = sorted((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
        moments = tuple(file.stat().st_mtime for file in files)
        runs.append(SparkRun(moments, tuple(processors.at(moment) for moment in moments)))
    return runs
