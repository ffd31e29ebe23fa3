"""The jobs that run on Spark: Headrace's and Spark's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from benchmarks.discard import Discard
from benchmarks.spark_runs import Order
from benchmarks.spark_streams import run_to_end, topic_rows
from benchmarks.windows.kinds import DELAY, KINDS, Kind
from benchmarks.windows.rows import FILES_PER_BATCH

FLOW = "windows"
COLUMNS = ("key", "start", "end", "n", "total", "top")
TWO_WINDOWS = "two_windows"
"""The kind of a run that computes windows of a minute too, from the same rows."""


def _kind(order: Order) -> Kind:
    return KINDS["tumbling" if order.kind == TWO_WINDOWS else order.kind]


def _key(order: Order) -> str:
    """The column that windows are kept by."""
    return _kind(order).key


def _shown(windows: DataFrame, order: Order) -> DataFrame:
    """Windows as they are compared; those that are thrown away are left as they are."""
    if order.results is None:
        return windows
    window = F.col("window")
    bounds = (F.unix_millis(window.getField(side)).alias(side) for side in ("start", "end"))
    return windows.select(F.col(_key(order)).alias("key"), *bounds, "n", "total", "top")


@hr.pipeline
def windows(spark: SparkSession, order: Order) -> None:
    """Headrace's form."""
    schema = f"{_key(order)} BIGINT, price BIGINT, ts TIMESTAMP"
    if order.servers is None:
        bids = hr.read_files(
            spark, order.rows, format="parquet", schema=schema, name="bids", files_per_batch=FILES_PER_BATCH
        )
    else:
        bids = hr.read_kafka(spark, order.rows, servers=order.servers, schema=schema, name="bids")
    steps = [_kind(order).ours()]
    if order.kind == TWO_WINDOWS:
        steps.append(hr.tumbling("minutes", size="1 minute", key=_key(order)))
    timed = bids.transform(hr.event_time("ts", out_of_order=DELAY))
    counted = [step.agg(n="count(*)", total="sum(price)", top="max(price)").late(hr.drop()) for step in steps]
    hr.write(FLOW, *((_shown(timed.transform(step), order), Discard(order.results)) for step in counted))


def run_headrace(spark: SparkSession, order: Order) -> None:
    """Headrace."""
    mode = hr.available_now() if order.servers is None else hr.available_now(max_rows=order.batch)
    windows.run(checkpoint=order.checkpoint, mode=mode, spark=spark, order=order)


def run_spark(spark: SparkSession, order: Order) -> None:
    """Spark's own operators."""
    bids = (
        _files(spark, order)
        if order.servers is None
        else topic_rows(spark, order, f"{_key(order)} BIGINT, price BIGINT")
    )
    aggregates = F.count("*").alias("n"), F.sum("price").alias("total"), F.max("price").alias("top")
    counted = bids.withWatermark("ts", DELAY).groupBy(_key(order), _kind(order).spark().alias("window"))
    run_to_end(_shown(counted.agg(*aggregates), order), order.checkpoint, order.results)


def _files(spark: SparkSession, order: Order) -> DataFrame:
    schema = f"{_key(order)} BIGINT, price BIGINT, ts TIMESTAMP"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(order.rows)


RUNS: Mapping[str, Callable[[SparkSession, Order], None]] = {"headrace": run_headrace, "spark": run_spark}
