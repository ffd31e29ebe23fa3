"""Runs on Spark, Headrace's and those of Spark's own operators, each in a process of its own."""

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
from types import ModuleType
from typing import Any

from benchmarks.batches import done_at
from benchmarks.flink.run import Steady
from benchmarks.processors import Processors

HEADRACE, SPARK = "headrace", "spark"


@dataclass(frozen=True, slots=True)
class Order:
    """What one run over the rows of a source is asked to do."""

    kind: str
    checkpoint: str
    batch: int
    """Rows that a batch takes of the topic."""
    servers: str | None
    """The broker, or None when rows come from files."""
    rows: str
    """The topic, or the folder of the files."""
    results: str | None
    """Where results are written; None: they are computed and thrown away."""


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
    jobs: ModuleType,
    system: str,
    orders: Sequence[Any],
    work: Path,
    *,
    connectors: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    timeout: int = 900,
) -> list[SparkRun]:
    """Run one order after the other in one process; ``jobs`` has ``Order``, ``RUNS`` by system and our ``FLOW``."""
    given = {
        "jobs": jobs.__name__,
        "system": system,
        "orders": [asdict(order) for order in orders],
        "connectors": list(connectors),
        "settings": {"spark.local.dir": str(work / "spark"), **(settings or {})},
    }
    command = [sys.executable, "-m", "benchmarks.measured_run", json.dumps(given)]
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
        checkpoint = Path(order.checkpoint)
        moments = _committed(checkpoint) if system == SPARK else done_at(checkpoint / jobs.FLOW)
        runs.append(SparkRun(moments, tuple(processors.at(moment) for moment in moments)))
    return runs


def _committed(checkpoint: Path) -> tuple[float, ...]:
    """When Spark wrote the file that is the last thing of each batch."""
    files = (file for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    return tuple(file.stat().st_mtime for file in sorted(files, key=lambda file: int(file.name)))
