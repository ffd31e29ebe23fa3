"""Tables of a real PostgreSQL followed, and an outbox relayed to a real Kafka, in a process that tests kill."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.postgres.changes.source import read_postgres_changes
from headrace.operators.outbox import outbox


@hr.pipeline(name="changes")
def changes(spark: SparkSession, root: str, dsn: str, servers: str) -> None:
    """Every change of the orders into files, every message of the outbox to a topic."""
    tables = read_postgres_changes(spark, ["orders", "outbox"], dsn=dsn, slot="changes")
    hr.write("orders", tables["orders"], hr.to_files(f"{root}/out"))
    timed = tables["outbox"].transform(hr.event_time("committed_at"))
    messages = timed.transform(outbox("messages", key="order_id")).select("key", "value")
    hr.write("relay", messages, hr.to_kafka("orders", servers=servers, key="key", format="raw"))


def main() -> None:
    """Run until killed, or over what is there."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--dsn", required=True)
    arguments.add_argument("--servers", required=True)
    arguments.add_argument("--to-the-end", action="store_true")
    given = arguments.parse_args()
    spark = hr.spark_session("changes", master="local[2,4]", quick_start=True)
    mode = hr.available_now() if given.to_the_end else hr.micro_batch("200 milliseconds")
    checkpoint = given.root / "checkpoint"
    changes.run(
        checkpoint=checkpoint, mode=mode, spark=spark, root=str(given.root), dsn=given.dsn, servers=given.servers
    )
    spark.stop()


if __name__ == "__main__":
    main()
