"""One run of one system in a process of its own: ``python -m benchmarks.wheel.measured_run '<order as JSON>'``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

import headrace as hr
from benchmarks.batches import seconds_of
from benchmarks.wheel.jobs import FLOW, OURS, RUNS, SETTINGS, Order


class Batches(StreamingQueryListener):
    """Keeps what Spark says about the time of each batch of its own queries."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to note."""

    def onQueryProgress(self, event: Any) -> None:
        """Note what a batch took."""
        self.seconds.append(event.progress.durationMs["triggerExecution"] / 1000)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to note."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to note."""


class Digest:
    """Results of a run as four numbers that do not depend on the order of rows."""

    def __init__(self) -> None:
        self.numbers = [0, 0, 0.0, 0]

    def take(self, frame: DataFrame) -> None:
        """Add a batch's results."""
        hashed = F.xxhash64("k", F.unix_millis("end"), "n", "total").cast("decimal(38,0)")
        row = frame.agg(F.count("*"), F.sum("n"), F.sum("total"), F.sum(hashed)).first()
        self.numbers = [old + (new or 0) for old, new in zip(self.numbers, row or (), strict=True)]


def main(text: str) -> None:
    given = json.loads(text)
    system = given["system"]
    spark = hr.spark_session("benchmark", master="local[2]", settings={**SETTINGS[system], **given["settings"]})
    batches = Batches()
    spark.streams.addListener(batches)
    digest = Digest() if given["digest"] else None
    first: list[float] = []
    order = Order(Path(given["folder"]), Path(given["checkpoint"]), digest.take if digest else None, given["share"])
    RUNS[system](spark, order, lambda: first.append(time.time()) if not first else None)
    if system in OURS:
        seconds = seconds_of(order.checkpoint / FLOW)
    else:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        seconds = tuple(batches.seconds)
    result = {
        "seconds": seconds,
        "first_result": first[0] if first else None,
        "digest": digest and [str(number) for number in digest.numbers],
    }
    Path(given["result"]).write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
