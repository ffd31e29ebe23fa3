"""A view of three tables that change, kept in three places by a job that is killed: each equals a query on the source.

``make recovery-changes`` runs it with ``--changes=20000 --view-kills=5``; the usual run leaves it out.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import polars as pl
import psycopg
import pytest
import redis
from confluent_kafka import Consumer, TopicPartition

from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.servers import running
from headrace.event_time.record import BatchLog
from headrace.observe import history
from headrace.observe.history import HistoryEntry
from headrace.services.service import Service
from tests.recovery.shop import LAST, TABLES, VIEW, Shop, close
from tests.recovery.view_job import CUSTOMER, ORDER

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(7200)]

COLUMNS = (*ORDER, *CUSTOMER)
SHOPS = 2
PATIENCE_SECONDS = 300.0
Row = tuple[str | None, ...]
View = dict[tuple[str | None, ...], Row]


@pytest.mark.parametrize("route", ["postgres", "debezium"])
def test_a_view_kept_in_three_places_equals_a_query_on_its_source_after_every_kill(
    route: str, new_job: Callable[..., Any], request: pytest.FixtureRequest, report: Callable[..., None]
) -> None:
    changes, kills = request.config.getoption("--changes"), request.config.getoption("--view-kills")
    job = new_job(f"view-{route}", "view_job.py")
    flow = job.root / "checkpoint" / "view"
    began = time.monotonic()
    with running("postgres") as postgres, running("redis") as cache, psycopg.connect(postgres.dsn) as source:
        source.autocommit = True
        source.execute(TABLES)
        with followed(route, postgres) as follower:
            arguments = ("--route", route, "--dsn", postgres.dsn, "--redis", cache.url, *follower.arguments)
            # The first start takes the tables as they are.
            assert job.run(*arguments, "--to-the-end", timeout=600) == 0, job.said()
            chance = random.Random(route)
            shops = [Shop(postgres.dsn, seed) for seed in range(SHOPS)]
            inside = 0
            for number, part in enumerate(_parts(changes, kills)):
                *first, next_to_last, last = _parts(part, 4)
                with job.running(*arguments) as process:
                    for each in first:
                        before = len(history.read(flow))
                        traded(shops, each)
                        while len(batches := history.read(flow)) == before and process.poll() is None:
                            time.sleep(0.02)
                    traded(shops, next_to_last)
                    time.sleep(chance.uniform(0, 1.2) * batches[-1].seconds.batch)
                    assert process.poll() is None, f"the job ended before kill {number}: {job.said()}"
                inside += BatchLog(LocalStorage(flow)).record is not None
                # The shops go on while the job is away, and once while the connector is away too.
                if number == 0:
                    follower.crash(partial(traded, shops, last))
                else:
                    traded(shops, last)
            close(source)
            follower.wait_for_the_last_rows()
            assert job.run(*arguments, "--to-the-end", timeout=1800) == 0, job.said()
        wanted = _texts(source.execute(VIEW).fetchall())
        places = {"delta": _in_delta(job.root / "view"), "redis": _in_redis(cache.url)}
        places["postgres"] = _texts(source.execute(f'select {", ".join(COLUMNS)} from "view"').fetchall())
    differences = {place: _differences(held, wanted) for place, held in places.items()}
    numbers, refused = _numbers(history.read(flow))
    report(
        route=route,
        changes=changes,
        kills=kills,
        in_a_batch=inside,
        batches=len(history.read(flow)),
        rows=len(wanted),
        differences=sum(map(len, differences.values())),
        began=began,
    )
    assert {place: found[:3] for place, found in differences.items()} == {place: [] for place in places}
    # No row was refused anywhere, none was taken away that was not there, and no value is missing.
    assert refused == 0
    assert {name: numbers[name] for name in numbers if name.endswith(("removed_unknown", "unknown_values"))} == {
        "paid.removed_unknown": 0,
        "whose.removed_unknown": 0,
        "customers.unknown_values": 0,
        "payments.unknown_values": 0,
    }
    # The view has what makes it hard: orders without payment, without customer, and large text.
    assert any(row[1] == "0" for row in wanted.values())
    assert any(row[2] is not None and row[8] is None for row in wanted.values())
    assert any(row[2] is None for row in wanted.values())
    assert any(len(row[10] or "") == 4_000 for row in wanted.values())
    assert (str(LAST), str(LAST)) in wanted


def traded(shops: list[Shop], changes: int) -> None:
    """All shops trade beside each other until so many changes are committed."""
    with ThreadPoolExecutor(len(shops)) as pool:
        list(pool.map(Shop.trade, shops, _parts(changes, len(shops))))


def _parts(whole: int, parts: int) -> list[int]:
    """A number as the sum of so many."""
    return [whole * (part + 1) // parts - whole * part // parts for part in range(parts)]


class Itself:
    """The job follows the tables itself: nothing stands between."""

    arguments: tuple[str, ...] = ()

    def crash(self, meanwhile: Callable[[], None]) -> None:
        """There is nothing that could."""
        meanwhile()

    def wait_for_the_last_rows(self) -> None:
        """The job reads whatever is committed when it starts."""


class Debezium:
    """A connector in a Kafka Connect worker, which writes the changes of each table to a topic."""

    def __init__(self, postgres: Service, kafka: Service, worker: Service) -> None:
        self._postgres, self._kafka, self._worker = postgres, kafka, worker
        self.arguments: tuple[str, ...] = ("--servers", kafka.address)

    def follow(self) -> None:
        """Put the connector into the worker; how far it was is in the worker's file."""
        server = urlsplit(self._postgres.dsn)
        settings = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": str(server.hostname),
            "database.port": str(server.port),
            "database.user": str(server.username),
            "database.password": str(server.password),
            "database.dbname": server.path.strip("/"),
            "topic.prefix": "shop",
            "plugin.name": "pgoutput",
            "slot.name": "debezium",
            "publication.autocreate.mode": "filtered",
            "table.include.list": "public.customers,public.orders,public.payments",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
        }
        answer = httpx.put(f"{self._worker.url}/connectors/shop/config", json=settings, timeout=60)
        assert answer.is_success, answer.text

    def crash(self, meanwhile: Callable[[], None]) -> None:
        """Kill the worker and start it again after a while: some changes are sent twice."""
        self._worker.kill()
        meanwhile()
        self._worker.start()
        self.follow()

    def wait_for_the_last_rows(self) -> None:
        """Until the row that was committed last is the last of every topic."""
        self.wait_for(lambda key: key == LAST)

    def wait_for(self, wanted: Callable[[int], bool]) -> None:
        """Until the key of the last message of every topic is as wanted."""
        until = time.monotonic() + PATIENCE_SECONDS
        waiting = {"customers": "customer_id", "orders": "order_id", "payments": "payment_id"}
        consumer = Consumer({"bootstrap.servers": self._kafka.address, "group.id": "look", "log_level": 0})
        try:
            while waiting:
                assert time.monotonic() < until, f"the connector did not write the last rows of {waiting} in time"
                time.sleep(0.3)
                for table, column in list(waiting.items()):
                    key = _last_key(consumer, f"shop.public.{table}")
                    if key is not None and wanted(key["payload"][column]):
                        del waiting[table]
        finally:
            consumer.close()


def _last_key(consumer: Consumer, topic: str) -> Any:
    if topic not in consumer.list_topics(timeout=30).topics:
        return None
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    if end == 0:
        return None
    consumer.assign([TopicPartition(topic, 0, end - 1)])
    message = consumer.poll(30)
    return None if message is None or message.error() else json.loads(message.key() or b"")


@contextmanager
def followed(route: str, postgres: Service) -> Iterator[Itself | Debezium]:
    """What stands between the database and the job, on each route."""
    if route == "postgres":
        yield Itself()
        return
    with ExitStack() as servers:
        kafka = servers.enter_context(running("kafka"))
        worker = servers.enter_context(running("connect", kafka.folder.parent))
        debezium = Debezium(postgres, kafka, worker)
        debezium.follow()
        debezium.wait_for(lambda key: True)
        yield debezium


def _numbers(batches: list[HistoryEntry]) -> tuple[Counter[str], int]:
    """What the steps told in all batches, and how many rows were refused by sources, steps and sinks."""
    numbers: Counter[str] = Counter()
    refused = 0
    for batch in batches:
        for step, said in batch.counters.items():
            numbers.update({f"{step}.{name}": number for name, number in said.items()})
        refused += batch.account.dead
        refused += sum(step.failed for step in batch.account.steps.values())
        refused += sum(sink.refused for sink in batch.account.sinks.values())
    return numbers, refused


def _texts(rows: Any) -> View:
    """Rows by the key of the view, every value as text."""
    found = [tuple(None if value is None else str(value) for value in row) for row in rows]
    view = {row[:2]: row for row in found}
    assert len(view) == len(found), "a key is there twice"
    return view


def _differences(held: View, wanted: View) -> list[tuple[str | None, ...]]:
    """The keys of rows that one has and the other has not, or not so."""
    return sorted((key for key in held.keys() | wanted.keys() if held.get(key) != wanted.get(key)), key=str)


def _in_delta(table: Path) -> View:
    """The files that the table's own log says are in it."""
    files: dict[str, bool] = {}
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "remove" in action:
                files[action["remove"]["path"]] = False
            if "add" in action:
                assert not action["add"].get("deletionVector")
                files[action["add"]["path"]] = True
    rows = pl.concat([pl.read_parquet(table / file) for file, there in files.items() if there])
    return _texts(rows.select(COLUMNS).rows())


def _in_redis(url: str) -> View:
    client = redis.Redis.from_url(url, decode_responses=True)
    pipeline = client.pipeline(transaction=False)
    for key in client.scan_iter("view:*", count=5_000):
        pipeline.hgetall(key)
    return _texts([tuple(row.get(column) for column in COLUMNS) for row in pipeline.execute()])
