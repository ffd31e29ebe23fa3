"""Changes of a real PostgreSQL through a real Debezium connector and Kafka: the last state equals a SQL query."""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.servers import running, service
from headrace.errors import HeadraceError
from headrace.observe import history
from headrace.observe.committed import committed_rows
from headrace.services.service import Service

COLUMNS = ("id", "owner", "note", "amount", "open", "at", "photo", "tags")
CHANGES = hr.debezium_changes(
    "id BIGINT, owner STRING, note STRING, amount DECIMAL(12, 2), open BOOLEAN, at TIMESTAMP, photo BINARY, "
    "tags ARRAY<STRING>",
    key="id",
)
TABLE = """create table {} (id bigint primary key, owner text not null, note text, amount numeric(12, 2), open boolean,
           at timestamptz, photo bytea, tags text[])"""
LAST = 1_000_000
"""The id of the row that is put in at the end."""
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def connect(kafka: Service) -> Iterator[Service]:
    """A worker beside the broker."""
    with running("connect", kafka.folder.parent) as worker:
        yield worker


@dataclass(frozen=True, slots=True)
class Followed:
    """A schema of one test with two tables, and the connector that follows them."""

    name: str
    postgres: Service
    worker: Service

    def topic(self, table: str) -> str:
        return f"{self.name}.{self.name}.{table}"

    def follow(self, **more: str) -> None:
        """Put the connector into the worker, which forgets it when it ends; how far it was is in a file."""
        server = urlsplit(self.postgres.dsn)
        settings = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": str(server.hostname),
            "database.port": str(server.port),
            "database.user": str(server.username),
            "database.password": str(server.password),
            "database.dbname": server.path.strip("/"),
            "topic.prefix": self.name,
            "plugin.name": "pgoutput",
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "filtered",
            "schema.include.list": self.name,
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            **more,
        }
        answer = httpx.put(f"{self.worker.url}/connectors/{self.name}/config", json=settings, timeout=60)
        assert answer.is_success, answer.text

    def wait_until_noted(self, connection: psycopg.Connection[Any]) -> None:
        """Until the snapshot is over and the worker has noted how far it is in the log."""
        slot = "select count(*) from pg_replication_slots where slot_name = %s and confirmed_flush_lsn "
        # The server sets it once the slot has its start. Before that the slot is already active.
        self._wait(connection, slot + "is not null", [self.name])
        known = connection.execute("select pg_current_wal_lsn()").fetchone()
        assert known is not None
        connection.execute(f"insert into {self.name}.whole (id, owner) values (%s, 'a mark')", [LAST - 1])
        # The connector notes a transaction when a later one has come.
        later = f"with later as (update {self.name}.whole set owner = owner where id = {LAST - 1}) "
        self._wait(connection, later + slot + "> %s", [self.name, known[0]])

    def kill(self) -> None:
        """Kill the worker, but not while it writes its file of offsets: half a file is none, and all begins anew."""
        offsets = self.worker.folder / "data" / "offsets"
        until = time.monotonic() + PATIENCE_SECONDS
        assert self.worker.pid is not None
        while True:
            os.kill(self.worker.pid, signal.SIGSTOP)
            # What Java has written whole ends with the end of a block.
            if (written := offsets.read_bytes()).endswith(b"x") and self.name.encode() in written:
                self.worker.kill()
                return
            os.kill(self.worker.pid, signal.SIGCONT)
            assert time.monotonic() < until, f"{offsets} is never whole"
            time.sleep(0.01)

    def forget(self, connection: psycopg.Connection[Any]) -> None:
        """Take the connector out and what it left in the database away."""
        answer = httpx.delete(f"{self.worker.url}/connectors/{self.name}", timeout=60)
        assert answer.is_success, answer.text
        slot = "from pg_replication_slots where slot_name = %s"
        self._wait(connection, f"select count(*) {slot} and not active", [self.name])
        connection.execute(f"select pg_drop_replication_slot(slot_name) {slot}", [self.name])
        connection.execute(f"drop publication {self.name}")

    def _wait(self, connection: psycopg.Connection[Any], slots: str, given: list[str]) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while connection.execute(slots, given).fetchone() != (1,):
            assert time.monotonic() < until, slots
            time.sleep(0.1)


@pytest.fixture
def followed(connect: Service, postgres: Service) -> Iterator[Followed]:
    """Two empty tables: one that logs whole rows when they change, and one that logs their keys."""
    name = f"s{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"create schema {name}")
        for table in ("whole", "keyed"):
            connection.execute(TABLE.format(f"{name}.{table}"))
        connection.execute(f"alter table {name}.whole replica identity full")
        tables = Followed(name, postgres, connect)
        yield tables
        tables.forget(connection)
        connection.execute(f"drop schema {name} cascade")


class Life:
    """Random changes of both tables."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, seed: int) -> None:
        self._connection = connection
        self._schema = schema
        self._random = random.Random(seed)
        self._next = 1

    def go_on(self, changes: int) -> None:
        """So many changes, several in each transaction."""
        while changes > 0:
            with self._connection.transaction():
                for _ in range(min(changes, self._random.randint(1, 8))):
                    self._change(self._random.choice(("whole", "keyed")))
                    changes -= 1

    def _change(self, table: str) -> None:
        place = f"{self._schema}.{table}"
        ids = [found for (found,) in self._connection.execute(f"select id from {place}")]
        kind = self._random.choice(("insert", "insert", "update", "update", "note", "delete", "move"))
        if kind == "insert" or not ids:
            row = (self._next, f"owner {self._random.randint(1, 9)}", self._note(), *self._others())
            self._connection.execute(f"insert into {place} values (%s, %s, %s, %s, %s, %s, %s, %s)", row)
            self._next += 1
            return
        chosen = self._random.choice(ids)
        match kind:
            case "update":
                new = (*self._others(), chosen)
                self._connection.execute(
                    f"update {place} set amount = %s, open = %s, at = %s, photo = %s, tags = %s where id = %s",
                    new,
                )
            case "note":
                self._connection.execute(f"update {place} set note = %s where id = %s", (self._note(), chosen))
            case "delete":
                self._connection.execute(f"delete from {place} where id = %s", (chosen,))
            case "move" if table == "whole":
                self._connection.execute(f"update {place} set id = %s where id = %s", (self._next, chosen))
                self._next += 1
            case "move":
                # Where only keys are logged, a large value is not sent with the row's new key.
                new_note = (self._next, self._note(), chosen)
                self._connection.execute(f"update {place} set id = %s, note = %s where id = %s", new_note)
                self._next += 1

    def _note(self) -> str | None:
        """Nothing, a few words with all that JSON must escape, or text so large that it is stored apart."""
        match self._random.randint(0, 3):
            case 0:
                return None
            case 1:
                return 'a "quoted"\nnote \\ with ümlauts, 漢字 and \t tabs'
            case _:
                return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz", k=self._random.randint(10, 20_000)))

    def _others(self) -> tuple[object, ...]:
        number = self._random
        return (
            None if number.random() < 0.2 else number.randint(-(10**9), 10**9) / 100,
            number.choice((True, False, None)),
            f"2026-0{number.randint(1, 9)}-11 10:00:00.{number.randint(0, 999_999):06d}+02",
            number.choice((None, b"", bytes(range(200)))),
            number.choice((None, [], ["x", None, 'y"'])),
        )


def _last_state(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The table that a changelog leaves: per key by position; what was not sent stays as it was."""
    table: dict[int, dict[str, Any]] = {}
    newest: dict[int, tuple[str, set[str]]] = {}
    for row in rows:
        position, kinds = newest.get(row["id"], ("", set()))
        if row["position"] < position or (row["position"] == position and row["change"] in kinds):
            continue
        newest[row["id"]] = (row["position"], {*(kinds if row["position"] == position else ()), row["change"]})
        if row["change"] == "delete":
            table.pop(row["id"], None)
        elif row["change"] != "update_before":
            held = table.get(row["id"], {})
            table[row["id"]] = {name: held[name] if name in row["unchanged"] else row[name] for name in COLUMNS}
    return [tuple(table[number].values()) for number in sorted(table)]


def _pipeline(followed: Followed, servers: str, root: Path) -> Any:
    @hr.pipeline
    def copied(spark: SparkSession) -> None:
        for table in ("whole", "keyed"):
            topic = followed.topic(table)
            changes = hr.read_kafka(spark, topic, servers=servers, schema=CHANGES, name=table)
            timed = changes.transform(hr.event_time("committed_at", out_of_order="1 hour"))
            hr.write(table, timed, hr.to_files(root / table, format="parquet"))

    return copied


@pytest.mark.spark
@pytest.mark.parametrize(
    "schemas",
    [
        pytest.param("true", id="with a schema part"),
        pytest.param("false", id="without a schema part", marks=pytest.mark.full),
    ],
)
def test_the_last_state_of_followed_tables_equals_a_query_though_the_connector_is_killed(
    schemas: str, followed: Followed, kafka: Service, postgres: Service, tmp_path: Path, spark: SparkSession
) -> None:
    plain = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": schemas,
    }
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        life = Life(connection, followed.name, seed=7)
        life.go_on(80)
        followed.follow(**plain)
        # A snapshot that was not finished is begun anew, and nobody would tell what was deleted meanwhile.
        followed.wait_until_noted(connection)
        life.go_on(200)
        followed.kill()
        life.go_on(100)
        followed.worker.start()
        followed.follow(**plain)
        life.go_on(100)
        for table in ("whole", "keyed"):
            connection.execute(f"insert into {followed.name}.{table} (id, owner) values (%s, 'the last')", [LAST])
        pipeline = _pipeline(followed, kafka.address, tmp_path)
        until = time.monotonic() + PATIENCE_SECONDS
        found: dict[str, list[dict[str, Any]]] = {}
        while time.monotonic() < until and not _complete(found):
            pipeline.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)
            found = {table: committed_rows(tmp_path / table).rows(named=True) for table in ("whole", "keyed")}
        for table, rows in found.items():
            wanted = connection.execute(f"select {', '.join(COLUMNS)} from {followed.name}.{table} order by id")
            assert _last_state(rows) == wanted.fetchall()
            batches = history.read(tmp_path / "checkpoint" / table)
            assert sum(batch.account.sources[table].dead for batch in batches) == 0
            assert sum(batch.account.sources[table].handed_on for batch in batches) == len(rows)
        assert {row["change"] for row in found["whole"]} == {"insert", "update_before", "update_after", "delete"}
        assert any(row["unchanged"] == ["note"] for row in found["keyed"])


def _complete(found: dict[str, list[dict[str, Any]]]) -> bool:
    return bool(found) and all(any(row["id"] == LAST for row in rows) for rows in found.values())


def test_without_a_broker_beside_it_a_worker_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match=r"\[SERVICE_NEEDS_KAFKA\] .* headrace services up kafka connect"):
        service("connect", tmp_path).start()
