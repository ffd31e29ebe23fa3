"""One run of one system on Spark in a process of its own: ``python -m benchmarks.windows.measured_run '<JSON>'``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psutil

import headrace as hr
from benchmarks.wheel.measured_run import Batches
from benchmarks.windows.spark_jobs import RUNS, Order


class BatchesAndProcessors(Batches):
    """Notes besides how much processor time the JVM and the Python workers have used when a batch ends."""

    def __init__(self) -> None:
        super().__init__()
        self.processors: dict[int, dict[str, float]] = {}

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Note a batch's durations and what the processes have used so far."""
        super().onQueryProgress(event)
        used = {"java": 0.0, "python": 0.0}
        for process in psutil.Process().children(recursive=True):
            try:
                times = process.cpu_times()
                used["java" if process.name() == "java" else "python"] += times.user + times.system
            except psutil.NoSuchProcess:
                continue
        self.processors[event.progress.batchId] = used


def main(text: str) -> None:
    given = json.loads(text)
    connectors = ("kafka",) if given["system"] == "spark" else ()
    spark = hr.spark_session("windows", master="local[2]", connectors=connectors, settings=given["settings"])
    batches = BatchesAndProcessors()
    spark.streams.addListener(batches)
    order = Order(
        given["kind"],
        Path(given["checkpoint"]),
        given["batch"],
        given["servers"],
        given["rows"],
        None if given["results"] is None else Path(given["results"]),
    )
    RUNS[given["system"]](spark, order)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    noted = {"durations": batches.durations, "processors": batches.processors}
    Path(given["result"]).write_text(json.dumps(noted))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
