"""Runs one SQL job in Flink, in a process of its own, and says how fast its sources read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.flink.environment import environment

FLINK = "flink"
SLOTS = 2
SETTINGS: Mapping[str, str] = {
    "parallelism.default": str(SLOTS),
    "taskmanager.numberOfTaskSlots": str(SLOTS),
    "execution.checkpointing.interval": "10s",
    "table.local-time-zone": "UTC",
    # The next two are in Flink's favour: state on the heap needs no conversion, and rows are not copied between
    # operators of one task.
    "state.backend.type": "hashmap",
    "pipeline.object-reuse": "true",
}
MEMORY = "-Xmx4g"
"""As much as Spark's driver has."""


@dataclass(frozen=True, slots=True)
class SqlJob:
    """Tables by their statements, and the one statement that runs."""

    tables: tuple[str, ...]
    insert: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Beside, or instead of, those that every job has."""
    counted: str = ""
    """The table whose rows are counted; none: those of all sources."""
    classes: tuple[Path, ...] = ()
    """Jars that a format needs beside Flink's own."""


@dataclass(frozen=True, slots=True)
class Steady:
    """The part of a run that is measured."""

    rows: int
    seconds: float
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class FlinkRun:
    """What one run showed: moments, the rows that had been read by then, and the processor seconds spent."""

    progress: tuple[tuple[float, int, float], ...]

    def steady(self, first: int) -> Steady:
        """From the moment at which ``first`` rows had been read to the last look.

        >>> FlinkRun(((0.0, 10, 5.0), (1.0, 100, 6.0), (3.0, 700, 9.0))).steady(first=50)
        Steady(rows=600, seconds=2.0, processor_seconds=3.0)
        """
        looks = [look for look in self.progress if look[1] >= first]
        (began, before, spent), (ended, after, spent_in_all) = looks[0], looks[-1]
        return Steady(after - before, ended - began, spent_in_all - spent)


def run(job: SqlJob, work: Path, *, timeout: int = 600) -> FlinkRun:
    """Run a job to its end; ``work`` is an empty folder of its own."""
    found = environment()
    jars = os.pathsep.join(map(str, (*found.jars, *job.classes)))
    order = {
        "settings": {**SETTINGS, "execution.checkpointing.dir": (work / "checkpoints").as_uri(), **job.settings},
        "statements": job.tables,
        "insert": job.insert,
        "counted": job.counted,
        "result": str(work / "result.json"),
    }
    (work / "order.json").write_text(json.dumps(order))
    # PyFlink has no other way to add to the class path of its JVM; there jars are loaded once and for all.
    surroundings = {**os.environ, "HADOOP_CLASSPATH": jars, "JVM_ARGS": MEMORY, "FLINK_LOG_DIR": str(work)}
    surroundings.pop("PYTHONPATH", None)
    command = [str(found.python), str(Path(__file__).with_name("job.py")), str(work / "order.json")]
    with (work / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=work, env=surroundings, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(timeout)
        finally:
            _end(process)
    if status != 0:
        raise RuntimeError(f"Flink failed:\n{(work / 'output.txt').read_text()[-4000:]}")
    progress = json.loads((work / "result.json").read_text())["progress"]
    return FlinkRun(tuple((moment, rows, spent) for moment, rows, spent in progress))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and the JVM it has started, which are a group of their own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
