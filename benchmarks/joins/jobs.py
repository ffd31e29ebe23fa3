"""The joins on Spark: Headrace's, and Spark's own of two streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from benchmarks.discard import Discard
from benchmarks.joins.kinds import CHEAP, DEAR, INTERVAL, SECONDS
from benchmarks.joins.rows import tiers_of
from benchmarks.spark_runs import Order
from benchmarks.spark_streams import run_to_end, topic_rows
from benchmarks.windows.kinds import DELAY

FLOW = "joined"
COLUMNS = ("bidder", "at", "price", "found_at", "found")
"""A bid, its time in milliseconds, and what it met: a dear bid's price, or the bidder's tier."""


@hr.pipeline
def joined(spark: SparkSession, order: Order) -> None:
    """Headrace's forms."""
    bids = _rows(spark, order, order.rows, "bids", "price")
    if order.kind == INTERVAL:
        step = hr.interval_join("meeting", on="bidder", between=("0 seconds", f"{SECONDS} seconds")).late(hr.drop())
        met = step(*hr.split(bids, CHEAP, DEAR)).withColumnRenamed("price_right", "found")
    else:
        tiers = _rows(spark, order, tiers_of(order.rows), "tiers", "tier")
        valid = hr.temporal_join("valid", on="bidder", keep_forever=True, versions_late=hr.drop()).late(hr.drop())
        met = valid(bids, tiers).withColumnRenamed("tier", "found")
    at, found_at = F.unix_millis("ts").alias("at"), F.unix_millis("ts_right").alias("found_at")
    hr.write(FLOW, met.select("bidder", at, "price", found_at, "found"), Discard(order.results))


def _rows(spark: SparkSession, order: Order, topic: str, name: str, column: str) -> DataFrame:
    assert order.servers is not None
    schema = f"bidder BIGINT, {column} BIGINT, ts TIMESTAMP"
    rows = hr.read_kafka(spark, topic, servers=order.servers, schema=schema, name=name)
    return rows.transform(hr.event_time("ts", out_of_order=DELAY))


def run_headrace(spark: SparkSession, order: Order) -> None:
    """Headrace."""
    joined.run(checkpoint=order.checkpoint, mode=hr.available_now(max_rows=order.batch), spark=spark, order=order)


def run_spark(spark: SparkSession, order: Order) -> None:
    """Spark's own join of two streams, with a watermark on both; it has none as of event time."""
    assert order.kind == INTERVAL
    sides = (topic_rows(spark, order, "bidder BIGINT, price BIGINT").withWatermark("ts", DELAY) for _ in range(2))
    cheap, dear = (side.where(kind) for side, kind in zip(sides, (CHEAP, DEAR), strict=True))
    named = dear.select(*(F.col(name).alias(f"dear_{name}") for name in ("bidder", "price", "at", "ts")))
    near = F.expr(f"bidder = dear_bidder AND dear_ts BETWEEN ts AND ts + INTERVAL {SECONDS} SECONDS")
    met = cheap.join(named, near).select(
        "bidder", "at", "price", F.col("dear_at").alias("found_at"), F.col("dear_price").alias("found")
    )
    run_to_end(met, order.checkpoint, order.results)


RUNS: Mapping[str, Callable[[SparkSession, Order], None]] = {"headrace": run_headrace, "spark": run_spark}
