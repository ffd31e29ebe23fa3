"""Headrace's form: A, one to three B, C, each the very next row of a bidder, within a minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headrace as hr
from benchmarks.discard import Discard
from benchmarks.patterns.kinds import KINDS, condition
from benchmarks.spark_runs import Order
from benchmarks.windows.kinds import DELAY

FLOW = "matches"
COLUMNS = ("bidder", "began", "ended", "n", "total")
"""Who; the times of A and C in milliseconds; how many B and the sum of their prices."""


@hr.pipeline
def matches(spark: SparkSession, order: Order) -> None:
    """Headrace's job."""
    assert order.servers is not None
    schema = "bidder BIGINT, price BIGINT, ts TIMESTAMP"
    bids = hr.read_kafka(spark, order.rows, servers=order.servers, schema=schema, name="bids")
    is_a, is_b, is_c = (condition("price", prices) for prices in KINDS[order.kind].values())
    # What MATCH_RECOGNIZE means by PATTERN (A B{1,3} C): nothing in between, and matches do not overlap.
    step = (
        hr.pattern("matching", key="bidder")
        .begin("a", is_a)
        .next("b", is_b)
        .times(1, 3)
        .consecutive()
        .greedy()
        .next("c", is_c)
        .within("1 minute")
        .after_match(hr.skip.past_last())
        .select(began="a.ts", ended="c.ts", n="count(b.*)", total="sum(b.price)")
        .late(hr.drop())
    )
    timed = bids.transform(hr.event_time("ts", out_of_order=DELAY))
    found = timed.transform(step)
    moments = (F.unix_millis(name).alias(name) for name in ("began", "ended"))
    hr.write(FLOW, found.select("bidder", *moments, "n", "total"), Discard(order.results))


def run_headrace(spark: SparkSession, order: Order) -> None:
    """Headrace."""
    mode = hr.available_now(max_rows=order.batch)
    matches.run(checkpoint=order.checkpoint, mode=mode, spark=spark, order=order)


RUNS: Mapping[str, Callable[[SparkSession, Order], None]] = {"headrace": run_headrace}
