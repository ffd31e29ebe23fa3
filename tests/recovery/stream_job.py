"""The job that recovery tests kill while Spark reads its source: rate or a data source in Python."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pyspark.sql import SparkSession

import headrace as hr
from headrace.event_time.record import BatchLog
from tests.number_source import Numbers
from tests.recovery.failpoints import crash, wrap


@hr.pipeline(name="recovery")
def passing(spark: SparkSession, root: str, stream: str) -> None:
    """Every row of the stream, and windows over the numbers unless they are only passed on."""
    reader = spark.readStream.format("rate" if stream == "rate" else "numbers")
    if stream == "rate":
        rate = hr.source(reader.option("rowsPerSecond", 2_000).load(), name="rows")
        hr.write("passed", rate.withColumnRenamed("value", "n"), hr.to_files(f"{root}/out"))
        return
    numbers = hr.source(reader.option("folder", root).load(), name="rows").transform(hr.event_time("at"))
    minutes = hr.tumbling("minutes", size="1 minute", key=None).agg(k="count(*)", total="sum(n)").late(hr.drop())
    hr.write("passed", numbers, hr.to_files(f"{root}/out"))
    if stream == "numbers":
        hr.write("counted", numbers.transform(minutes), hr.to_files(f"{root}/minutes"))


def install(name: str, batch: int, marker: str) -> None:
    """Make this process die at a named step of a batch."""
    group = os.getpgrp()

    def die() -> None:
        crash(marker, group)

    match name:
        case "before the record":
            wrap(BatchLog, "write_record", lambda record: record.batch == batch, before=die)
        case "after the record":
            wrap(BatchLog, "write_record", lambda record: record.batch == batch, after=die)
        case "between our outcome and Spark's commit":
            wrap(BatchLog, "write_outcome", lambda outcome: outcome.batch == batch, after=die)
        case _:
            raise ValueError(f"no failpoint is named {name!r}")


def main() -> None:
    """Run until killed, or to the end of what is there."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--stream", choices=("rate", "numbers", "passed"), required=True)
    arguments.add_argument("--drain", action="store_true")
    arguments.add_argument("--failpoint")
    arguments.add_argument("--batch", type=int, default=0)
    arguments.add_argument("--marker", default="")
    given = arguments.parse_args()
    if given.failpoint is not None:
        install(given.failpoint, given.batch, given.marker)
    spark = hr.spark_session("recovery", master="local[2]", quick_start=True)
    spark.dataSource.register(Numbers)
    passing.run(
        checkpoint=given.root / "checkpoint",
        mode=hr.available_now(drain=True) if given.drain else hr.micro_batch("100 milliseconds"),
        spark=spark,
        root=str(given.root),
        stream=given.stream,
    )
    spark.stop()


if __name__ == "__main__":
    main()
