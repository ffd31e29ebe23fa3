"""Kafka: our transactions beside Spark's own sink, which may write a batch twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as F

import headrace as hr
from benchmarks.sinks.cases import Case, Digest, Way
from benchmarks.sinks.ours import delivery
from benchmarks.sinks.rows import Rows
from headrace.connectors.servers import running

TOPIC_PARTITIONS = 4


@contextmanager
def kafka_case(rows: Rows, root: Path) -> Iterator[Case]:
    """Rows as JSON, with the account as key, both compressed alike."""
    with running("kafka") as kafka:
        servers = kafka.address
        _create_topics(servers, "ours", "sparks")
        write_ours = delivery(hr.to_kafka("ours", servers=servers, key="account"), rows, root / "kafka")

        def write_sparks(batch: int) -> None:
            frame = rows.frame(batch)
            messages = frame.select(F.col("account").alias("key"), F.to_json(F.struct(*frame.columns)).alias("value"))
            writer = messages.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "sparks")
            # As ours: without compression or linger the broker has more bytes or more requests to handle.
            writer.option("kafka.compression.type", "lz4").option("kafka.linger.ms", "5").save()

        def digest(topic: str) -> Digest:
            reader = rows.kept.sparkSession.read.format("kafka").option("kafka.bootstrap.servers", servers)
            read = reader.option("kafka.isolation.level", "read_committed").option("subscribe", topic).load()
            # Both write JSON, but not each time and number with the same signs.
            parsed = F.from_json(F.col("value").cast("string"), rows.frame(0).schema).alias("row")
            counted = read.select(F.col("key").cast("string"), parsed).select("key", "row.*")
            hashed = F.xxhash64(*counted.columns).cast("decimal(38,0)")
            number, total = counted.agg(F.count("*"), F.sum(hashed)).first() or (0, 0)
            return int(number), str(total)

        yield Case(
            "kafka_vs_spark",
            Way("to_kafka", write_ours, lambda: digest("ours")),
            (Way("Spark's Kafka sink", write_sparks, lambda: digest("sparks")),),
            least_ratio=0.7,
        )


def _create_topics(servers: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(name, TOPIC_PARTITIONS) for name in names]).values():
        created.result()
