"""Where Headrace's time goes: one run with a clock on every part, which costs a little and is not compared."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spark_runs import HEADRACE, Place, Source, run_on_spark
from benchmarks.windows import spark_jobs
from benchmarks.windows.parts_daemon import FOLDER
from headrace.observe import history

DAEMON = {"spark.python.daemon.module": "benchmarks.windows.parts_daemon"}


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds for a million rows after the warm-up."""

    batch: dict[str, float]
    """By the clock, of one batch after the other: up to the last result, and what is checked and logged after it."""
    tasks: dict[str, float]
    """By the clock, of all tasks together: two run at a time."""
    processors: dict[str, float]
    """Processor time by process."""
    state: tuple[int, int]
    """Rows and bytes of state after the last batch."""


def measure_parts(kind: str, source: Source, warm: Source, place: Place) -> Parts:
    """Run Headrace once, after the same warm-up as always."""
    measured = source.measured
    millions = len(measured) * source.batch / 1_000_000
    with place.work() as work:
        notes = work / "parts"
        notes.mkdir()
        os.environ[FOLDER] = str(notes)
        orders = [warm.order(kind, work / "warm"), source.order(kind, work / kind)]
        _, shown = run_on_spark(spark_jobs, HEADRACE, orders, work, settings=DAEMON)
        tasks = _tasks(notes, str(work / kind), measured)
        entries = history.read(work / kind / spark_jobs.FLOW)
    batch: Counter[str] = Counter()
    for number in measured:
        seconds = entries[number].seconds
        batch.update({"compute": seconds.compute, "conclude": seconds.batch - seconds.compute})
    ended, began = shown.processors[measured[-1]], shown.processors[measured[0] - 1]
    state = entries[measured[-1]].state
    return Parts(
        {part: took / millions for part, took in batch.items()},
        {part: took / millions for part, took in tasks.items()},
        {process: (ended[process] - began[process]) / millions for process in ended},
        (state.rows, state.bytes),
    )


def _tasks(notes: Path, checkpoint: str, batches: range) -> Counter[str]:
    spent: Counter[str] = Counter()
    for file in notes.iterdir():
        for line in file.read_text().splitlines():
            noted = json.loads(line)
            if noted["run"].startswith(checkpoint) and noted["batch"] in batches:
                spent.update(noted["parts"])
    return spent
