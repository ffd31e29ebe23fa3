"""The job that recovery tests kill while Spark reads its source: rate or a data source in Python."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

import headrace as hr
from tests.number_source import Numbers


@hr.pipeline(name="recovery")
def passing(spark: SparkSession, root: str, stream: str) -> None:
    """Every row of the stream, and windows over the numbers."""
    reader = spark.readStream.format(stream)
    if stream == "rate":
        rate = hr.source(reader.option("rowsPerSecond", 2_000).load(), name="rows")
        hr.write("passed", rate.withColumnRenamed("value", "n"), hr.to_files(f"{root}/out"))
        return
    numbers = hr.source(reader.option("folder", root).load(), name="rows").transform(hr.event_time("at"))
    minutes = hr.tumbling("minutes", size="1 minute", key=None).agg(k="count(*)", total="sum(n)").late(hr.drop())
    hr.write("passed", numbers, hr.to_files(f"{root}/out"))
    hr.write("counted", numbers.transform(minutes), hr.to_files(f"{root}/minutes"))


def main() -> None:
    """Run until killed, or to the end of what is there."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--stream", choices=("rate", "numbers"), required=True)
    arguments.add_argument("--drain", action="store_true")
    given = arguments.parse_args()
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
