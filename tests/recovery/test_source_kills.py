"""Every kind of source, fed while its flow is killed again and again: every row is there once."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from headrace.connectors.mqtt.feed import landed
from headrace.connectors.mqtt.server import ACCEPTED, GREETING
from headrace.connectors.servers import running
from headrace.observe import history
from headrace.services.service import Service
from tests.recovery.source_job import SOURCES
from tests.topics import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]

KILLS = 10
WHILE_STARTING = 3
CHUNKS_A_KILL = 3
CHUNKS = KILLS * CHUNKS_A_KILL
CHUNK = 10_000
ROWS = CHUNKS * CHUNK
MOST_RUNS = 10
"""So often the job may run to the end: a start waits only seconds for what the MQTT broker has kept."""
IN_FLIGHT = 1_000
REMOVED_EVERY = 3
"""Of the table whose changes are read, the file of every third chunk is removed by the next commit."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Brings numbered rows to every source, a chunk at a time."""

    root: Path
    kafka: str
    postgres: str
    mqtt: str

    def prepare(self) -> None:
        """Make folders, topics and tables, all of them empty."""
        (self.root / "in").mkdir()
        create_topic(self.kafka, "numbers", 2)
        with psycopg.connect(self.postgres) as database:
            database.execute("create table numbers (id bigint primary key)")
        field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
        metadata = {
            "id": "numbers",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": [field]}),
            "partitionColumns": [],
            "configuration": {"delta.enableChangeDataFeed": "true"},
        }
        for table in ("table", "changed"):
            protocol = {"minReaderVersion": 1, "minWriterVersion": 4}
            self._commit(table, 0, {"protocol": protocol}, {"metaData": metadata})

    def send(self, chunk: int) -> None:
        """Bring a chunk to every source; half way Kafka's topic gets one more partition."""
        first = chunk * CHUNK
        ids = pl.DataFrame({"id": range(first, first + CHUNK)})
        ids.write_ndjson(self.root / "in" / f".{chunk}")
        (self.root / "in" / f".{chunk}").rename(self.root / "in" / f"{chunk}.json")
        lines = [json.dumps({"id": number}).encode() for number in ids["id"]]
        self._send_to_kafka(lines, partitions=2 if chunk < CHUNKS // 2 else 3)
        for table in ("table", "changed"):
            self._commit(table, chunk + 1, self._added(table, ids, chunk), *self._removed(table, chunk))
        with psycopg.connect(self.postgres) as database:
            database.execute("insert into numbers select generate_series(%s::bigint, %s)", (first, first + CHUNK - 1))
        self._publish(lines)

    def _send_to_kafka(self, lines: list[bytes], *, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka, "log_level": 0})
        if len(admin.list_topics("numbers", 30).topics["numbers"].partitions) < partitions:
            admin.create_partitions([NewPartitions("numbers", partitions)])["numbers"].result(30)
        settings = {"bootstrap.servers": self.kafka, "enable.idempotence": True, "log_level": 0}
        producer = Producer({**settings, "topic.metadata.refresh.interval.ms": 100})
        for number, line in enumerate(lines):
            producer.produce("numbers", line, partition=number % partitions)
        assert producer.flush(60) == 0

    def _publish(self, messages: list[bytes]) -> None:
        """Publish with acknowledgement. Bytes on a socket: a client in Python takes some 1,500 messages a second."""
        host, port = self.mqtt.split(":")
        topic = struct.pack(">H", len("numbers")) + b"numbers"
        with socket.create_connection((host, int(port)), timeout=60) as broker, broker.makefile("rb") as answers:
            broker.sendall(GREETING)
            assert answers.read(len(ACCEPTED)) == ACCEPTED
            for first in range(0, len(messages), IN_FLIGHT):
                part = messages[first : first + IN_FLIGHT]
                bodies = [topic + struct.pack(">H", number) + each for number, each in enumerate(part, 1)]
                assert max(map(len, bodies)) < 128, "the length is one byte"
                broker.sendall(b"".join(bytes([0x32, len(body)]) + body for body in bodies))
                acknowledged = [answers.read(4) for _ in part]
                assert acknowledged == [struct.pack(">BBH", 0x40, 2, number) for number in range(1, len(part) + 1)]

    def _commit(self, table: str, version: int, *actions: dict[str, Any]) -> None:
        log = self.root / table / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        file = log / f".{version}"
        file.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        file.rename(log / f"{version:020}.json")

    def _added(self, table: str, ids: pl.DataFrame, chunk: int) -> dict[str, Any]:
        ids.write_parquet(self.root / table / f"{chunk}.parquet")
        return {"add": {**self._about(table, chunk), "modificationTime": 0}}

    def _removed(self, table: str, chunk: int) -> Iterator[dict[str, Any]]:
        if table == "changed" and chunk % REMOVED_EVERY == 1:
            about = self._about(table, chunk - 1)
            yield {"remove": {**about, "deletionTimestamp": 0, "extendedFileMetadata": True}}

    def _about(self, table: str, chunk: int) -> dict[str, Any]:
        file = self.root / table / f"{chunk}.parquet"
        return {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "dataChange": True}


@pytest.fixture(scope="module")
def survived(new_job: Callable[..., Any]) -> Any:
    """A job that was killed ten times while all its sources were fed, and then ran to the end of what was there."""
    job = new_job("sources", "source_job.py")
    chance = random.Random(5)
    starting = set(chance.sample(range(KILLS), WHILE_STARTING))
    with running("kafka") as kafka, running("postgres") as postgres, running("mosquitto") as mqtt:
        _without_syncing(mqtt)
        feed = Feed(job.root, kafka.address, postgres.dsn, mqtt.address)
        feed.prepare()
        arguments = ("--kafka", feed.kafka, "--postgres", feed.postgres, "--mqtt", feed.mqtt)
        # From now on PostgreSQL and the MQTT broker keep for the job what comes while it is away.
        assert job.run(*arguments, "--to-the-end") == 0, job.said()
        for number in range(KILLS):
            flow = job.root / "checkpoint" / chance.choice(SOURCES)
            before = len(history.read(flow))
            with job.running(*arguments) as process:
                for chunk in range(number * CHUNKS_A_KILL, (number + 1) * CHUNKS_A_KILL):
                    feed.send(chunk)
                while number not in starting and len(history.read(flow)) == before and process.poll() is None:
                    time.sleep(0.02)
                time.sleep(chance.uniform(0, 1))
                assert process.poll() is None, f"the job ended before kill {number}: {job.said()}"
        for _ in range(MOST_RUNS):
            assert job.run(*arguments, "--to-the-end") == 0, job.said()
            if len(set(_stored(job))) == ROWS:
                break
        # What has landed while the last run began is there now.
        assert job.run(*arguments, "--to-the-end") == 0, job.said()
    return job


def _without_syncing(mqtt: Service) -> None:
    """Let the broker, which is not killed here, not write all that it keeps after each change.

    It did: 1,000 messages for a client that was away took 8 s, and 300,000 would take for ever, because the file grows.
    """
    mqtt.stop()
    settings = mqtt.folder / "mosquitto.conf"
    settings.write_text(settings.read_text().replace("autosave_on_changes true", "autosave_on_changes false"))
    mqtt.start()


def _stored(job: Any) -> list[int]:
    """What the MQTT source has in its landing log."""
    files = (job.root / "checkpoint" / "landing" / "mqtt").glob("[0-9]*.arrow")
    return [json.loads(message)["id"] for file in files for message in landed(str(file))["payload"].to_pylist()]


@pytest.mark.parametrize("source", SOURCES)
def test_every_row_of_a_source_is_there_once_after_the_kills(source: str, survived: Any) -> None:
    rows = survived.listed(f"out/{source}")
    found, expected = rows["id"].sort().to_list(), list(range(ROWS))
    match source:
        case "generator":
            assert len(found) >= ROWS
            assert found == [f"p{number:09}" for number in range(len(found))]
        case "mqtt":
            # A broker sends again what was stored and not acknowledged before a kill; what is stored is read once.
            stored = _stored(survived)
            assert set(found) == set(expected)
            assert found == sorted(stored)
        case "delta_changes":
            removed = [number for number in expected if number // CHUNK % REMOVED_EVERY == 0]
            assert rows.filter(change="insert")["id"].sort().to_list() == expected
            assert rows.filter(change="delete")["id"].sort().to_list() == removed
            assert rows.height == len(expected) + len(removed)
        case _:
            assert found == expected
