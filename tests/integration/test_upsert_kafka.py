"""A compacted topic as a table: written and read by real flows over a real broker, deletes as tombstones."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.base.sink import WriterBatch
from headrace.observe.committed import committed_rows
from headrace.services.service import Service
from tests.topics import create_topic, messages
from tests.writers import Writer

CUSTOMERS = hr.upsert_changes("id BIGINT, name STRING, credit DECIMAL(10, 2), since TIMESTAMP", key="id")
PARTITIONS = 3


@pytest.fixture
def topic(kafka: Service) -> str:
    """A compacted topic."""
    return compacted(kafka)


def compacted(kafka: Service) -> str:
    name = f"table-{uuid.uuid4().hex[:8]}"
    create_topic(kafka.address, name, PARTITIONS, **{"cleanup.policy": "compact"})
    return name


def table_of(kafka: Service, topic: str) -> dict[Any, Any]:
    """What a reader makes of a topic: the last value of each key."""
    table: dict[Any, Any] = {}
    for key, value in messages(kafka.address, topic):
        assert key is not None
        if value is None:
            table.pop(key, None)
        else:
            table[key] = json.loads(value)
    return table


def test_the_last_change_of_each_key_is_a_message_and_a_delete_is_a_tombstone(kafka: Service, topic: str) -> None:
    sink = hr.to_kafka(topic, servers=kafka.address, key="id", changes="upsert")
    writer = Writer(topic)
    sink.prepare({"id": pl.Int64(), "n": pl.Int64()}, [writer.name], 1)

    def deliver(batch: int, *rows: tuple[int | None, int | None, str]) -> Any:
        part: WriterBatch = writer.batch(0, batch, batch - 1 if batch else None, changelog=True)
        frame = pl.DataFrame(rows, schema={"id": pl.Int64, "n": pl.Int64, "change": pl.String}, orient="row")
        return sink.deliver(frame, part)

    first = deliver(0, (1, 10, "insert"), (2, 20, "insert"), (1, 10, "update_before"), (1, 11, "update_after"))
    assert (first.written, first.superseded) == (2, 2)
    assert table_of(kafka, topic) == {b"1": {"id": 1, "n": 11}, b"2": {"id": 2, "n": 20}}
    rows = ((2, 20, "delete"), (3, 30, "insert"), (3, 30, "delete"), (None, 5, "insert"))
    second = deliver(1, *rows)
    assert (second.written, second.superseded, second.refused["reason"].to_list()) == (2, 1, ["KEY_NULL"])
    assert table_of(kafka, topic) == {b"1": {"id": 1, "n": 11}}
    assert (b"2", None) in messages(kafka.address, topic)
    again = deliver(1, *rows)
    assert (again.written, again.already_marked, again.superseded) == (0, 2, 1)
    assert len(messages(kafka.address, topic)) == 4


def test_a_sink_of_a_table_has_a_key_and_writes_json(kafka: Service, topic: str) -> None:
    for wrong in ({}, {"key": "id", "format": "raw"}):
        with pytest.raises(hr.DefinitionError, match=r"\[UPSERT_NEEDS_KEY\] to_kafka\("):
            hr.to_kafka(topic, servers=kafka.address, changes="upsert", **wrong)  # type: ignore[arg-type]
    with pytest.raises(hr.DefinitionError, match=r"\[CHANGES_UNKNOWN\]"):
        hr.to_kafka(topic, servers=kafka.address, key="id", changes="append")  # type: ignore[arg-type]
    sink = hr.to_kafka(topic, servers="broker:9092", key="id", changes="upsert")
    assert repr(sink) == f"hr.to_kafka({topic!r}, servers='broker:9092', key=['id'], changes='upsert')"


def put(kafka: Service, topic: str, given: list[tuple[bytes | None, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": kafka.address})
    for key, value in given:
        producer.produce(topic, value=value, key=key)
    assert producer.flush(60) == 0


@pytest.mark.spark
def test_a_table_goes_through_a_flow_from_topic_to_topic(kafka: Service, spark: SparkSession, tmp_path: Path) -> None:
    """Customers change and vanish; their table, and the number of those of each name, are topics again."""
    source, copied, counted = (compacted(kafka) for _ in range(3))

    @hr.pipeline
    def shop(session: SparkSession) -> None:
        changes = hr.read_kafka(session, source, servers=kafka.address, schema=CUSTOMERS, name="customers")
        timed = changes.transform(hr.event_time("committed_at", out_of_order="1 minute"))
        table = timed.transform(hr.materialize("table", key="id", before_images=True))
        names = table.transform(hr.table_aggregate("names", key="name", row_key="id").agg(n="count(*)"))
        shown = names.select("name", "n", "change")
        hr.write(
            "shop",
            (table, hr.to_kafka(copied, servers=kafka.address, key="id", changes="upsert")),
            (shown, hr.to_kafka(counted, servers=kafka.address, key="name", changes="upsert")),
        )

    chance = random.Random(5)
    wanted: dict[int, dict[str, Any]] = {}
    for round_ in range(3):
        given: list[tuple[bytes | None, bytes | None]] = []
        for _ in range(60):
            id = chance.randrange(12)
            if chance.random() < 0.3:
                wanted.pop(id, None)
                given.append((str(id).encode(), None))
                continue
            row = {"id": id, "name": chance.choice("abc"), "credit": "1.50", "since": "2026-01-01T00:00:00Z"}
            wanted[id] = row

            given.append((str(id).encode(), json.dumps(row).encode()))
        if round_ == 1:
            given.append((b"99", b"{broken"))
        put(kafka, source, given)
        shop.run(checkpoint=str(tmp_path / "checkpoint"), mode=hr.available_now(), spark=spark)
    found = table_of(kafka, copied)
    shown = {int(key): (row["id"], row["name"], row["credit"]) for key, row in found.items()}
    assert shown == {id: (row["id"], row["name"], row["credit"]) for id, row in wanted.items()}
    assert not any("change" in row for row in found.values())
    names = [row["name"] for row in wanted.values()]
    counts = {key.decode(): row["n"] for key, row in table_of(kafka, counted).items()}
    assert counts == {name: names.count(name) for name in set(names)}
    dead = committed_rows(tmp_path / "checkpoint" / "shop" / "dead_letters")
    assert dead["reason"].to_list() == ["NOT_JSON"]
