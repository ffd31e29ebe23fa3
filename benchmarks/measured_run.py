"""Runs of one system on Spark, one after the other in one process of their own; what to run comes as JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module

import headrace as hr
from benchmarks.spark_streams import SPARKS_STATE


def main(text: str) -> None:
    given = json.loads(text)
    jobs = import_module(given["jobs"])
    run = jobs.RUNS[given["system"]]
    settings = {**SPARKS_STATE, **given["settings"]}
    spark = hr.spark_session("benchmark", master="local[2]", connectors=given["connectors"], settings=settings)
    for order in given["orders"]:
        run(spark, jobs.Order(**order))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
