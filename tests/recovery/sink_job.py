"""Tumbling windows written to a real server, in a process of its own that tests kill, freeze and start again."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.kafka import sink as kafka_sink
from headrace.connectors.postgres.sink import MarkTable
from headrace.generator.payments import Payments
from tests.recovery.failpoints import crash, wrap

IDLE = "1 hour"


def sink_of(kind: str, address: str, root: str, **how: Any) -> Any:
    """The sink of a kind; ``address`` is the server's."""
    match kind:
        case "kafka":
            return hr.to_kafka("out", servers=address, key="account", **how)
        case "delta":
            return hr.to_delta(f"{root}/table")
        case "postgres":
            return hr.to_postgres("spend", dsn=address, **how)
        case "redis":
            return hr.to_redis(address, key="spend:{account}:{window_start}", **how)
        case _:
            return hr.to_files(f"{root}/out")


@hr.pipeline(name="recovery")
def spend(spark: SparkSession, root: str, sink: str, address: str) -> None:
    """Spend by account and minute; no row is late, so that the result depends on nothing but the rows."""
    if sink == "kafka":
        rows = hr.read_kafka(spark, "in", servers=address, schema=Payments.schema, name="payments")
    else:
        folder = f"{root}/in"
        rows = hr.read_files(spark, folder, format="json", schema=Payments.schema, name="payments", files_per_batch=1)
    timed = rows.transform(hr.event_time("at", out_of_order="2 minutes", idle=IDLE))
    windows = (
        hr.tumbling("spend", size="1 minute", key="account")
        .agg(spent="sum(amount)", payments="count(*)", first="min(id)", last="max(id)")
        .late(hr.side_output())
    )
    hr.write("spend", timed.transform(windows), sink_of(sink, address, root))


def die_claiming(sink: str, marker: str) -> None:
    """Make this process die at its start, when the first writer of its sink is claimed and the next is not."""
    group = os.getpgrp()
    owner: Any = {"kafka": kafka_sink, "postgres": MarkTable}[sink]
    wrap(owner, "claim", lambda *_: True, after=lambda: crash(marker, group))


def main() -> None:
    """Run to the end of the data."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--sink", required=True)
    arguments.add_argument("--address", default="")
    arguments.add_argument("--rows-per-batch", type=int, default=5_000)
    arguments.add_argument("--die-claiming", help="a file that tells that it has")
    given = arguments.parse_args()
    if given.die_claiming is not None:
        die_claiming(given.sink, given.die_claiming)
    connectors = ("delta",) if given.sink == "delta" else ()
    spark = hr.spark_session("recovery", master="local[2,4]", quick_start=True, connectors=connectors)
    bounded = {"max_rows": given.rows_per_batch} if given.sink == "kafka" else {}
    spend.run(
        checkpoint=given.root / "checkpoint",
        mode=hr.available_now(drain=True, **bounded),
        spark=spark,
        root=str(given.root),
        sink=given.sink,
        address=given.address,
    )
    spark.stop()


if __name__ == "__main__":
    main()
