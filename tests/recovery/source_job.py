"""The rows of every kind of source copied into files, a flow for each, in a process that tests kill."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

import headrace as hr

SOURCES = ("files", "kafka", "delta", "delta_changes", "postgres", "mqtt", "generator")
RATE = 2_500
"""Rows a second of the generator."""


@hr.pipeline(name="sources")
def copies(spark: SparkSession, root: str, kafka: str, postgres: str, mqtt: str) -> None:
    """A copy of each source."""
    schema = "id BIGINT"
    rows = (
        hr.read_files(spark, f"{root}/in", format="json", schema=schema, name="files", files_per_batch=1),
        hr.read_kafka(spark, "numbers", servers=kafka, schema=schema, name="kafka"),
        hr.read_delta(spark, f"{root}/table", name="delta", files_per_batch=1),
        hr.read_delta(spark, f"{root}/changed", changes=True, name="delta_changes"),
        hr.read_postgres_changes(spark, "numbers", dsn=postgres, slot="numbers"),
        hr.read_mqtt(spark, "numbers", servers=mqtt, schema=schema, name="mqtt"),
        hr.generate(spark, hr.Payments(), rate=RATE, name="generator"),
    )
    for name, frame in zip(SOURCES, rows, strict=True):
        hr.write(name, frame, hr.to_files(f"{root}/out/{name}"))


def main() -> None:
    """Run until killed, or over what is there."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    for server in ("kafka", "postgres", "mqtt"):
        arguments.add_argument(f"--{server}", required=True)
    arguments.add_argument("--to-the-end", action="store_true")
    given = arguments.parse_args()
    spark = hr.spark_session("sources", master="local[2,4]", quick_start=True, connectors=("delta",))
    copies.run(
        checkpoint=given.root / "checkpoint",
        mode=hr.available_now() if given.to_the_end else hr.micro_batch("100 milliseconds"),
        spark=spark,
        root=str(given.root),
        kafka=given.kafka,
        postgres=given.postgres,
        mqtt=given.mqtt,
    )
    spark.stop()


if __name__ == "__main__":
    main()
