"""Runs of one system on Spark, one after the other in one process of their own; what to run comes as JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import headrace as hr
from benchmarks.spark_streams import SPARKS_STATE
from benchmarks.wheel.measured_run import Batches


def main(text: str) -> None:
    given = json.loads(text)
    jobs = import_module(given["jobs"])
    run = jobs.RUNS[given["system"]]
    settings = {**SPARKS_STATE, **given["settings"]}
    spark = hr.spark_session("benchmark", master="local[2]", connectors=given["connectors"], settings=settings)
    *earlier, last = (jobs.Order(**order) for order in given["orders"])
    for order in earlier:
        run(spark, order)
    batches = Batches()
    if given["durations"] is not None:
        # Costs a third of a second of the JVM for each batch, so that timed runs do without.
        spark.streams.addListener(batches)
    run(spark, last)
    if given["durations"] is not None:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        Path(given["durations"]).write_text(json.dumps(batches.durations))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
