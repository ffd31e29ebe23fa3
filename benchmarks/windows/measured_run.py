"""Runs of one system on Spark, one after the other in one process of their own; what to run comes as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import headrace as hr
from benchmarks.wheel.measured_run import Batches
from benchmarks.windows.spark_jobs import RUNS, Order


def main(text: str) -> None:
    given = json.loads(text)
    connectors = ("kafka",) if given["system"] == "spark" else ()
    spark = hr.spark_session("windows", master="local[2]", connectors=connectors, settings=given["settings"])
    *earlier, last = (Order(**order) for order in given["orders"])
    for order in earlier:
        RUNS[given["system"]](spark, order)
    batches = Batches()
    if given["durations"] is not None:
        # Costs a third of a second of the JVM for each batch, so that timed runs do without.
        spark.streams.addListener(batches)
    RUNS[given["system"]](spark, last)
    if given["durations"] is not None:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        Path(given["durations"]).write_text(json.dumps(batches.durations))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
