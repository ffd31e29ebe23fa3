"""Kafka as a source, against a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession

import headrace as hr
from headrace.checkpoint.storage import LocalStorage
from headrace.event_time.record import BatchLog
from headrace.observe import history
from headrace.observe.committed import committed_rows
from headrace.services.service import Service
from tests.topics import create_topic

pytestmark = pytest.mark.spark
SCHEMA = "id STRING NOT NULL, account STRING, amount BIGINT, at TIMESTAMP"
NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)


@dataclass
class Topic:
    """A topic of one test."""

    servers: str
    name: str
    admin: AdminClient

    def produce(self, *rows: dict[str, Any] | bytes | None, partition: int = 0, **how: Any) -> None:
        """Send rows (or raw payloads) and wait until the broker has them."""
        producer = Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 0, "enable.idempotence": True, "log_level": 0}
        )
        for row in rows:
            payload = json.dumps(row).encode() if isinstance(row, dict) else row
            producer.produce(self.name, payload, partition=partition, **how)
        assert producer.flush(20) == 0


@pytest.fixture
def new_topic(kafka: Service) -> Callable[..., Topic]:
    """A function that makes a topic with so many partitions."""
    admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})

    def make(partitions: int = 1, name: str | None = None) -> Topic:
        called = name or f"t{uuid.uuid4().hex[:8]}"
        create_topic(kafka.address, called, partitions)
        return Topic(kafka.address, called, admin)

    return make


def _row(identity: str, second: int, amount: int = 1, account: str = "a") -> dict[str, Any]:
    return {
        "id": identity,
        "account": account,
        "amount": amount,
        "at": f"2025-01-01T12:{second // 60:02d}:{second % 60:02d}Z",
    }


def _copy(topic: str, servers: str, out: Path, **how: Any) -> hr.runtime.pipeline.Pipeline:  # type: ignore[name-defined]
    """A pipeline that writes what it reads."""

    @hr.pipeline
    def copied(spark: SparkSession) -> None:
        how.setdefault("schema", SCHEMA) if how.get("format") != "raw" else None
        hr.write("copied", hr.read_kafka(spark, topic, servers=servers, name="rows", **how), hr.to_files(out))

    return copied


def _run(pipeline: Any, root: Path, spark: SparkSession, **how: Any) -> list[dict[str, Any]]:
    pipeline.run(checkpoint=root / "checkpoint", mode=how.pop("mode", hr.available_now()), spark=spark)
    rows: list[dict[str, Any]] = committed_rows(root / "out").rows(named=True)
    return rows


def test_rows_come_once_and_bad_ones_are_dead_letters_with_topic_partition_and_offset(
    new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic(2)
    topic.produce(_row("p1", 0), b"{broken", _row("p2", 1), None, partition=0)
    topic.produce(_row("p3", 2), b'{"id": null}', partition=1)
    copied = _copy(topic.name, topic.servers, tmp_path / "out")
    assert sorted(row["id"] for row in _run(copied, tmp_path, spark)) == ["p1", "p2", "p3"]
    topic.produce(_row("p4", 3), partition=1)
    assert sorted(row["id"] for row in _run(copied, tmp_path, spark)) == ["p1", "p2", "p3", "p4"]
    letters = committed_rows(tmp_path / "checkpoint" / "copied" / "dead_letters")
    found = letters.select("source", "origin", "position", "reason").sort("origin", "position").rows()
    assert found == [
        ("rows", f"{topic.name}/0", 1, "NOT_JSON"),
        ("rows", f"{topic.name}/0", 3, "NO_VALUE"),
        ("rows", f"{topic.name}/1", 1, "MISSING_VALUE"),
    ]


@pytest.mark.full
def test_a_partition_that_lags_holds_the_watermark_so_that_its_rows_are_not_late(
    new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic(2)

    @hr.pipeline
    def counted(spark: SparkSession) -> None:
        rows = hr.read_kafka(spark, topic.name, servers=topic.servers, schema=SCHEMA, name="rows")
        windows = hr.tumbling("minute", size="1 minute", key="account").agg(n="count(*)").late(hr.side_output())
        timed = rows.transform(hr.event_time("at", idle="1 hour"))
        hr.write("counted", timed.transform(windows), hr.to_files(tmp_path / "out"))

    topic.produce(_row("ahead", 600, account="fast"), partition=0)
    topic.produce(_row("behind", 5, account="slow"), partition=1)
    _run(counted, tmp_path, spark)
    topic.produce(_row("still behind", 10, account="slow"), partition=1)
    _run(counted, tmp_path, spark)
    topic.produce(_row("caught up", 700, account="slow"), partition=1)
    _run(counted, tmp_path, spark)
    rows = _run(counted, tmp_path, spark)
    assert [(row["account"], row["n"]) for row in rows if row["account"] == "slow"] == [("slow", 2)]
    batches = history.read(tmp_path / "checkpoint" / "counted")
    assert sum(entry.account.steps["minute"].late for entry in batches) == 0
    assert set(batches[-1].partitions["rows"]) == {f"{topic.name}/0", f"{topic.name}/1"}


@pytest.mark.parametrize("start", ["latest", "moment", "offsets"])
def test_a_new_flow_starts_where_it_is_told(
    start: str, new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic()
    topic.produce(_row("old", 0), timestamp=1_700_000_000_000)
    topic.produce(_row("new", 1), timestamp=1_700_000_010_000)
    how: Any = {
        "latest": "latest",
        "moment": datetime.fromtimestamp(1_700_000_005, UTC),
        "offsets": {topic.name: {0: 1}},
    }[start]
    copied = _copy(topic.name, topic.servers, tmp_path / "out", start=how)
    assert [row["id"] for row in _run(copied, tmp_path, spark)] == ([] if start == "latest" else ["new"])
    topic.produce(_row("newest", 2))
    assert _run(copied, tmp_path, spark)[-1]["id"] == "newest"


@pytest.mark.full
def test_a_partition_added_later_is_read_from_its_beginning_while_the_flow_runs(
    new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic()
    topic.produce(_row("first", 0))
    copied = _copy(topic.name, topic.servers, tmp_path / "out", start="latest")
    running = copied.start(checkpoint=tmp_path / "checkpoint", mode=hr.micro_batch("200 milliseconds"), spark=spark)
    try:
        _until(lambda: BatchLog(LocalStorage(tmp_path / "checkpoint" / "copied")).outcome is not None)
        topic.admin.create_partitions([NewPartitions(topic.name, 2)])[topic.name].result()
        _until(lambda: len(topic.admin.list_topics(topic.name).topics[topic.name].partitions) == 2)
        topic.produce(_row("second", 1), partition=1)
        _until(lambda: committed_rows(tmp_path / "out").height == 1)
    finally:
        running.stop()
    assert committed_rows(tmp_path / "out")["id"].to_list() == ["second"]


def _until(done: Callable[[], bool], seconds: float = 120) -> None:
    import time

    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_offsets_that_are_gone_stop_the_flow_or_are_counted(
    new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic()
    topic.produce(_row("p0", 0))
    for root in (tmp_path / "fail", tmp_path / "count"):
        root.mkdir()
        _run(_copy(topic.name, topic.servers, root / "out"), root, spark)
    topic.produce(*[_row(f"p{number}", number) for number in range(1, 6)])
    topic.admin.delete_records([TopicPartition(topic.name, 0, 4)])
    _until(lambda: _earliest(topic) == 4)
    with pytest.raises(hr.HeadraceError, match=r"\[OFFSETS_LOST\].*offset 1 of .*offsets 4 to 6"):
        _run(_copy(topic.name, topic.servers, tmp_path / "fail" / "out"), tmp_path / "fail", spark)
    root = tmp_path / "count"
    rows = _run(_copy(topic.name, topic.servers, root / "out", on_lost="count"), root, spark)
    assert [row["id"] for row in rows] == ["p0", "p4", "p5"]
    assert sum(entry.lost["rows"] for entry in history.read(root / "checkpoint" / "copied")) == 3


def _earliest(topic: Topic) -> int:
    from headrace.connectors.kafka.positions import Subscription, Topics

    subscription = Subscription(topic.servers, (topic.name,), False, "earliest", "fail")
    return Topics(subscription).earliest([f"{topic.name}/0"])[f"{topic.name}/0"]


def test_a_pattern_reads_every_topic_that_matches(
    new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession
) -> None:
    stem = uuid.uuid4().hex[:8]
    for number in (1, 2):
        new_topic(name=f"{stem}.{number}").produce(_row(f"p{number}", number))
    other = new_topic(name=f"other.{stem}")
    other.produce(_row("no", 0))
    copied = _copy(rf"{stem}\..*", other.servers, tmp_path / "out", pattern=True)
    assert sorted(row["id"] for row in _run(copied, tmp_path, spark)) == ["p1", "p2"]


@pytest.mark.full
def test_rows_of_a_transaction_that_was_aborted_are_not_there_and_open_ones_are_waited_for(
    new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": topic.servers, "transactional.id": topic.name, "log_level": 0})
    producer.init_transactions(20)
    for identity, ends in (("kept", producer.commit_transaction), ("thrown away", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic.name, json.dumps(_row(identity, 0)).encode())
        producer.flush()
        ends(20)
    producer.begin_transaction()
    producer.produce(topic.name, json.dumps(_row("open", 0)).encode())
    producer.flush()
    copied = _copy(topic.name, topic.servers, tmp_path / "out")
    assert [row["id"] for row in _run(copied, tmp_path, spark)] == ["kept"]
    producer.commit_transaction(20)
    # The broker answers before its marker is in the partition.
    _until(lambda: [row["id"] for row in _run(copied, tmp_path, spark)] == ["kept", "open"])


def test_what_kafka_knows_of_a_message_can_be_columns_and_time(
    new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic()
    topic.produce(_row("p1", 0), timestamp=1_735_732_800_000, key=b"k1")

    @hr.pipeline
    def stamped(spark: SparkSession) -> None:
        known = "_timestamp TIMESTAMP, _key STRING, _topic STRING, _partition INT, _offset BIGINT, _position STRING"
        schema = f"id STRING, {known}"
        rows = hr.read_kafka(spark, topic.name, servers=topic.servers, schema=schema, name="rows")
        arrived = hr.read_kafka(spark, topic.name, servers=topic.servers, schema="id STRING", name="again")
        hr.write("stamped", rows.transform(hr.event_time("_timestamp")), hr.to_files(tmp_path / "out"))
        hr.write("arrived", arrived.transform(hr.ingestion_time()), hr.to_files(tmp_path / "arrived"))

    (row,) = _run(stamped, tmp_path, spark)
    assert row == {
        "id": "p1",
        "_timestamp": NOON,
        "_key": "k1",
        "_topic": topic.name,
        "_partition": 0,
        "_offset": 0,
        "_position": f"{topic.name}/0:0",
    }
    assert committed_rows(tmp_path / "arrived").rows() == [("p1", NOON)]


def test_raw_messages_have_kafkas_own_columns(
    new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic()
    topic.produce(b"\x00\xff", None, key=b"k")
    rows = _run(_copy(topic.name, topic.servers, tmp_path / "out", format="raw"), tmp_path, spark)
    assert [(row["value"], row["_key"], row["_offset"]) for row in rows] == [(b"\x00\xff", b"k", 0), (None, b"k", 1)]


def test_a_bound_on_rows_makes_many_batches_and_loses_nothing(
    new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic(2)
    for partition in (0, 1):
        topic.produce(*[_row(f"{partition}-{number}", number) for number in range(50)], partition=partition)
    mode = hr.available_now(max_rows=40)
    rows = _run(_copy(topic.name, topic.servers, tmp_path / "out"), tmp_path, spark, mode=mode)
    assert len({row["id"] for row in rows}) == len(rows) == 100
    batches = history.read(tmp_path / "checkpoint" / "copied")
    assert [entry.account.sources["rows"].read for entry in batches] == [40, 40, 20]
    assert [entry.unread["rows"] for entry in batches] == [60, 20, 0]
    assert {entry.cap for entry in batches} == {40}


@pytest.mark.parametrize("mistake", ["topic", "server"])
def test_what_cannot_be_read_is_an_error_before_the_first_batch(
    mistake: str, new_topic: Callable[..., Topic], tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    if mistake == "server":
        monkeypatch.setattr("headrace.connectors.kafka.positions.PATIENCE_SECONDS", 2.0)
    name, servers = ("nowhere", topic.servers) if mistake == "topic" else (topic.name, "127.0.0.1:1")
    problem = (
        r"\[TOPIC_UNKNOWN\].*no topic 'nowhere'.*" + topic.name if mistake == "topic" else r"\[SOURCE_UNREACHABLE\]"
    )
    with pytest.raises(hr.HeadraceError, match=problem):
        _run(_copy(name, servers, tmp_path / "out"), tmp_path, spark)
    assert history.read(tmp_path / "checkpoint" / "copied") == []


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"schema": None}, r"\[SCHEMA_MISSING\]"),
        ({"schema": "id STRING, _offset STRING"}, r"\[METADATA_TYPE\].*_offset.*BIGINT, .* declares STRING"),
        ({"schema": "_offset BIGINT"}, r"\[SCHEMA_MISSING\].*only metadata columns"),
        ({"on_lost": "ignore"}, r"\[ON_LOST_UNKNOWN\]"),
        ({"format": "xml"}, r"\[FORMAT_UNKNOWN\]"),
        ({"start": 3}, r"\[START_UNKNOWN\]"),
    ],
)
def test_a_mistake_in_the_definition_is_found_at_once(
    how: dict[str, Any], problem: str, tmp_path: Path, spark: SparkSession
) -> None:
    with pytest.raises(hr.DefinitionError, match=problem):
        _run(_copy("t", "127.0.0.1:1", tmp_path / "out", **how), tmp_path, spark)
