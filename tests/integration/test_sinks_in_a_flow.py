"""Whole flows into real servers: what arrives, what is refused before the first batch, what marks are for."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headrace as hr
from headrace.checkpoint.log import Log
from headrace.checkpoint.outages import OutageMarker, outages
from headrace.checkpoint.storage import LocalStorage
from headrace.cli import app
from headrace.connectors.servers import running
from headrace.event_time.record import BatchLog
from headrace.json_codec import encode
from headrace.observe import history
from headrace.observe.account import SourceCounts
from headrace.observe.committed import committed_rows
from headrace.runtime.pipeline import Pipeline
from headrace.services.service import Service
from tests.topics import create_topic, messages

pytestmark = pytest.mark.spark

SCHEMA = "id STRING, account STRING, amount BIGINT, at TIMESTAMP"
LARGE = 5_000_000
NOTHING = {"out": 0, "written": 0, "already_marked": 0, "superseded": 0, "refused": 0, "skipped": 0}


@pytest.fixture
def name() -> str:
    """What a test calls its topics, tables and keys."""
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def new_topic(kafka: Service, name: str) -> Callable[..., str]:
    """Makes topics with two partitions."""

    def make(suffix: str = "out", **settings: str) -> str:
        topic = f"{name}.{suffix}"
        create_topic(kafka.address, topic, 2, **settings)
        return topic

    return make


@pytest.fixture
def database(postgres: Service) -> Iterator[psycopg.Connection[Any]]:
    """A connection to look and to prepare with."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        yield connection


def _copying(landing: Path, *sinks: Any, select: str = "*") -> Pipeline:
    """A pipeline that writes what it reads, one file a batch."""

    @hr.pipeline(name="copy")
    def copy(spark: SparkSession) -> None:
        rows = hr.read_files(spark, landing, format="json", schema=SCHEMA, name="payments", files_per_batch=1)
        hr.write("copy", (rows.selectExpr(select), *sinks))

    return copy


def _run(pipeline: Pipeline, checkpoint: Path, spark: SparkSession, **how: Any) -> None:
    pipeline.run(checkpoint=checkpoint, mode=hr.available_now(**how), spark=spark)


def _messages(kafka: Service, topic: str) -> list[dict[str, Any]]:
    """The rows in a topic."""
    return [json.loads(value or b"") for _, value in messages(kafka.address, topic)]


def _accounts(checkpoint: Path, output: str) -> dict[str, int]:
    """The sum of an output's account over all batches."""
    totals: dict[str, int] = {}
    for entry in history.read(checkpoint):
        for count, rows in encode(entry.account.sinks.get(output, {})).items():
            totals[count] = totals.get(count, 0) + rows
    return totals


def test_two_sinks_and_late_rows_in_a_third_all_hold_exactly_their_rows(
    place: Any,
    name: str,
    kafka: Service,
    postgres: Service,
    redis_server: Service,
    new_topic: Callable[..., str],
    database: psycopg.Connection[Any],
    spark: SparkSession,
) -> None:
    topic = new_topic()
    place.land("1", ("1", "a", 5, "10:05:00"), ("2", "b", 1, "10:30:00"))
    place.land("2", ("3", "a", 7, "11:50:00"), ("4", "b", 1, "12:01:00"))
    place.land("3", ("late 1", "a", 9, "10:59:00"), ("late 2", "c", 9, "10:59:59"))

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        payments = hr.read_files(
            spark, place.landing, format="json", schema=SCHEMA, name="payments", files_per_batch=1
        ).transform(hr.event_time("at"))
        step = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.side_output())
        windows = step.outputs(payments)
        table = hr.to_postgres(name, dsn=postgres.url, upsert_on=["account", "window"])
        stream = hr.to_kafka(topic, servers=kafka.address, key="account")
        late = hr.to_redis(redis_server.url, key=name + ":{id}")
        hr.write("spend", (windows.main, table, stream), (windows.late, late))

    _run(spend, place.checkpoint, spark)
    place.land("4", ("5", "b", 2, "12:10:00"), ("late 3", "a", 1, "10:00:00"))
    _run(spend, place.checkpoint, spark, drain=True)
    expected = [("a", 10, 5), ("a", 11, 7), ("b", 10, 1), ("b", 12, 3)]
    hour = "extract(hour from window_start at time zone 'UTC')::int"
    rows = database.execute(f"select account, {hour}, spent from {name} order by 1, 2").fetchall()
    assert rows == expected
    sent = [(row["account"], int(row["window"]["start"][11:13]), row["spent"]) for row in _messages(kafka, topic)]
    assert sorted(sent) == expected
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        kept = {key: client.hmget(key, ["amount", "late_by"]) for key in client.scan_iter(f"{name}:*")}
    assert {key: amount for key, (amount, _) in kept.items()} == {
        f"{name}:late 1": "9",
        f"{name}:late 2": "9",
        f"{name}:late 3": "1",
    }
    assert all(late_by is not None for _, late_by in kept.values())
    flow = place.checkpoint / "spend"
    for output, count in (("main#1", 4), ("main#2", 4), ("hourly.late", 3)):
        account = _accounts(flow, output)
        assert account == {**NOTHING, "out": count, "written": count}
    said = spend.explain(spark=spark)
    for sink in ("main -> hr.to_postgres", "main -> hr.to_kafka", "hourly.late -> hr.to_redis"):
        [line] = [line for line in said.splitlines() if sink in line]
        assert line.endswith(": exactly_once")
    assert "one transaction; a batch that runs again finds the mark" in said
    assert "isolation.level=read_committed" in said
    assert "appendfsync=everysec" in said
    assert [finding.id for finding in spend.check(spark=spark)] == []


def test_explain_and_check_say_when_a_sink_promises_less(place: Any, kafka: Service, spark: SparkSession) -> None:
    sinks = (
        hr.to_kafka("spend", servers=kafka.address, guarantee="at_least_once"),
        hr.to_postgres("spend", dsn="host=db", guarantee="at_least_once"),
        hr.to_redis("redis://cache", key="{id}", guarantee="at_least_once"),
        hr.to_http("http://shop/in", identity="id"),
        hr.to_opensearch("http://search:9200", "spend", id="{id}"),
    )
    copy = _copying(place.landing, *sinks)
    findings = copy.check(spark=spark)
    assert [(finding.id, finding.severity) for finding in findings] == [("SINK_AT_LEAST_ONCE", "warning")] * 4
    lines = copy.explain(spark=spark).splitlines()
    for sink in sinks:
        at = lines.index(f"    main -> {sink!r}: {sink.guarantee}")
        assert lines[at + 1].strip() == sink.why


def _wrong_password(sinks: dict[str, Any]) -> Any:
    return hr.to_postgres("t", dsn=make_conninfo(sinks["postgres"].url, passfile="/dev/null"), password="c4n4ry")


MISTAKES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a wrong password of PostgreSQL": (_wrong_password, r"\[SINK_REFUSED\].*password authentication failed"),
    "a wrong password of Redis": (
        lambda s: hr.to_redis(s["redis"].url.replace("//", "//nobody@"), key="{id}", password="c4n4ry"),
        r"\[SINK_REFUSED\].*(WRONGPASS|invalid username-password)",
    ),
    "an unknown topic": (
        lambda s: hr.to_kafka("nowhere", servers=s["kafka"].address),
        r"\[TOPIC_UNKNOWN\].*no topic 'nowhere'",
    ),
    "a missing table": (
        lambda s: hr.to_postgres("nowhere", dsn=s["postgres"].url, create=False),
        r"\[TABLE_MISSING\].*create=True",
    ),
    "a column type that does not fit": (
        lambda s: hr.to_postgres(s["table"], dsn=s["postgres"].url),
        r"\[COLUMN_TYPE\].*column 'amount' is date.*bigint",
    ),
    "a key that is no column": (
        lambda s: hr.to_redis(s["redis"].url, key="{nobody}"),
        r"\[COLUMN_UNKNOWN\].*nobody",
    ),
    "a server that is not there": (
        lambda s: hr.to_postgres("t", dsn="host=127.0.0.1 port=1 dbname=shop"),
        r"\[SINK_UNREACHABLE\]",
    ),
    "one table twice": (
        lambda s: (hr.to_postgres("t", dsn=s["postgres"].url), hr.to_postgres("t", dsn=s["postgres"].url)),
        r"\[SINK_TWICE\]",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_an_error_with_an_id_before_the_first_batch(
    mistake: str,
    place: Any,
    name: str,
    kafka: Service,
    postgres: Service,
    redis_server: Service,
    database: psycopg.Connection[Any],
    spark: SparkSession,
) -> None:
    database.execute(f"create table {name} (id text, account text, amount date, at timestamptz)")
    place.land("1", ("1", "a", 5, "10:05:00"))
    make, problem = MISTAKES[mistake]
    sinks = make({"kafka": kafka, "postgres": postgres, "redis": redis_server, "table": name})
    copy = _copying(place.landing, *(sinks if isinstance(sinks, tuple) else (sinks,)))
    with pytest.raises(hr.HeadraceError, match=problem) as raised:
        _run(copy, place.checkpoint, spark)
    assert "c4n4ry" not in str(raised.value)
    assert history.read(place.checkpoint / "copy") == []
    # The driver took over, which it must before it claims the sinks, and began no batch.
    assert [entry.kind for entry in Log(LocalStorage(place.checkpoint / "copy")).read()] == ["takeover"]


def test_rows_that_a_sink_refuses_are_dead_letters_and_the_others_arrive(
    place: Any,
    name: str,
    kafka: Service,
    postgres: Service,
    new_topic: Callable[..., str],
    database: psycopg.Connection[Any],
    spark: SparkSession,
) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    database.execute(f"create table {name} (id text, amount bigint not null, pad text)")
    place.land(
        "1",
        ("1", "a", 5, "10:05:00"),
        ("large", "a", 6, "10:05:00"),
        '{"id": "null", "account": "a"}',
        '{"amount": 7, "account": "a"}',
        ("skipped", "a", 9, "10:05:00"),
    )
    database.execute(
        f"create function {name}_check() returns trigger language plpgsql as $$ begin "
        "if new.amount = 7 then raise 'no seven' using errcode = 'ZX001'; end if; "
        "if new.amount = 9 then return null; end if; return new; end $$"
    )
    database.execute(f"create trigger t before insert on {name} for each row execute function {name}_check()")

    @hr.pipeline(name="copy")
    def copy(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
        padded = rows.selectExpr("id", "amount", f"if(id = 'large', repeat('x', {LARGE}), '') AS pad")
        table = hr.to_postgres(name, dsn=postgres.url)
        hr.write("copy", (padded, hr.to_kafka(topic, servers=kafka.address, key="id"), table))

    _run(copy, place.checkpoint, spark)
    assert sorted(row["id"] for row in _messages(kafka, topic)) == ["1", "null", "skipped"]
    rows = database.execute(f"select id, length(pad) from {name} order by 1").fetchall()
    assert rows == [("1", 0), ("large", LARGE)]
    for output, skipped in (("main#1", 0), ("main#2", 1)):
        account = _accounts(place.checkpoint / "copy", output)
        assert account == {**NOTHING, "out": 5, "written": 3 - skipped, "refused": 2, "skipped": skipped}
        letters = _accounts(place.checkpoint / "copy", f"{output}.dead_letters")
        assert (letters["out"], letters["written"]) == (2, 2)
    listed = CliRunner().invoke(app, ["dead-letters", "list", str(place.checkpoint), "--json"])
    found = {(row["source"], row["reason"]) for row in json.loads(listed.stdout)}
    assert found == {("copy.main", reason) for reason in ("MESSAGE_TOO_LARGE", "KEY_NULL", "ROW_REFUSED")}
    details = committed_rows(place.checkpoint / "copy" / "dead_letters").filter(reason="ROW_REFUSED")["detail"]
    assert ["no seven (SQLSTATE ZX001)" in details, details.str.contains("null value in column").sum()] == [True, 1]
    shown = CliRunner().invoke(app, ["dead-letters", "list", str(place.checkpoint)], env={"COLUMNS": "140"}).stdout
    assert "MESSAGE_TOO_LARGE" in shown


def test_an_authors_column_named_change_reaches_every_table(
    place: Any,
    name: str,
    postgres: Service,
    redis_server: Service,
    database: psycopg.Connection[Any],
    spark: SparkSession,
) -> None:
    place.land("1", '{"id": "1", "change": "delete"}', '{"id": "2", "change": "up"}', '{"id": "3"}')

    @hr.pipeline(name="copy")
    def copy(spark: SparkSession) -> None:
        rows = hr.read_files(
            spark, place.landing, format="json", schema="id STRING, change STRING, position STRING", name="prices"
        )
        table = hr.to_postgres(name, dsn=postgres.url, upsert_on="id")
        lake = hr.to_delta(place.root / "lake", upsert_on="id")
        keys = hr.to_redis(redis_server.url, key=name + ":{id}")
        hr.write("copy", (rows.select("id", "change"), table, lake, keys))

    _run(copy, place.checkpoint, spark)
    expected = [("1", "delete"), ("2", "up"), ("3", None)]
    assert database.execute(f"select id, change from {name} order by 1").fetchall() == expected
    lake = spark.read.format("delta").load(str(place.root / "lake"))
    assert sorted(tuple(row) for row in lake.select("id", "change").collect()) == expected
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        assert [(id, client.hget(f"{name}:{id}", "change")) for id in ("1", "2", "3")] == expected
    for output in ("main#1", "main#2", "main#3"):
        assert _accounts(place.checkpoint / "copy", output) == {**NOTHING, "out": 3, "written": 3}


@pytest.mark.full
def test_a_message_of_5_megabytes_is_a_dead_letter_of_its_source(
    place: Any, kafka: Service, new_topic: Callable[..., str], spark: SparkSession
) -> None:
    topic = new_topic("in", **{"max.message.bytes": "8000000"})
    producer = Producer(
        {"bootstrap.servers": kafka.address, "message.max.bytes": 8_000_000, "enable.idempotence": True, "log_level": 0}
    )
    for identity, pad in (("1", ""), ("large", "x" * LARGE), ("3", "")):
        producer.produce(topic, json.dumps({"id": identity, "pad": pad}).encode(), partition=1)
    assert producer.flush(30) == 0

    @hr.pipeline(name="copy")
    def copy(spark: SparkSession) -> None:
        schema = "id STRING, pad STRING"
        rows = hr.read_kafka(spark, topic, servers=kafka.address, schema=schema, name="payments")
        hr.write("copy", rows, hr.to_files(place.root / "out"))

    _run(copy, place.checkpoint, spark)
    assert sorted(committed_rows(place.root / "out")["id"]) == ["1", "3"]
    letter = committed_rows(place.checkpoint / "copy" / "dead_letters").row(0, named=True)
    assert (letter["reason"], letter["origin"], letter["position"]) == ("TOO_LARGE", f"{topic}/1", 1)
    [entry] = history.read(place.checkpoint / "copy")
    assert entry.account.sources["payments"] == SourceCounts(read=3, handed_on=2, dead=1)


@pytest.mark.full
def test_a_restore_into_a_new_checkpoint_writes_again_under_a_new_generation(
    place: Any,
    name: str,
    kafka: Service,
    postgres: Service,
    redis_server: Service,
    new_topic: Callable[..., str],
    database: psycopg.Connection[Any],
    spark: SparkSession,
) -> None:
    topic = new_topic()
    sinks = (
        hr.to_kafka(topic, servers=kafka.address, key="id"),
        hr.to_postgres(name, dsn=postgres.url),
        hr.to_redis(redis_server.url, key=name + ":{id}"),
    )
    copy = _copying(place.landing, *sinks)
    place.land("1", ("1", "a", 5, "10:05:00"), ("2", "b", 1, "10:30:00"))
    _run(copy, place.checkpoint, spark)
    # The second start has a higher epoch than the first one of the restored checkpoint will have.
    _run(copy, place.checkpoint, spark)
    restored = place.root / "restored"
    identity = BatchLog(LocalStorage(place.checkpoint / "copy")).identity
    BatchLog(LocalStorage(restored / "copy")).take_over(lambda _: {**identity, "generation": 1})
    with redis.Redis.from_url(redis_server.url) as client:
        client.delete(f"{name}:1")
        _run(copy, restored, spark)
        assert client.exists(f"{name}:1") == 1
    ids = f"select id from {name} order by 1"
    assert [row[0] for row in database.execute(ids)] == ["1", "1", "2", "2"]
    assert sorted(row["id"] for row in _messages(kafka, topic)) == ["1", "1", "2", "2"]
    for output in ("main#1", "main#2", "main#3"):
        assert _accounts(restored / "copy", output)["written"] == 2
    place.land("2", ("3", "a", 5, "10:05:00"))
    with pytest.raises(hr.HeadraceError, match=r"\[(FENCED|GENERATION_OLD)\]"):
        _run(copy, place.checkpoint, spark)
    assert [row[0] for row in database.execute(ids)] == ["1", "1", "2", "2"]


@pytest.mark.full
def test_a_kafka_mark_that_has_expired_stops_the_flow(
    place: Any, kafka: Service, new_topic: Callable[..., str], spark: SparkSession
) -> None:
    topic = new_topic()
    copy = _copying(place.landing, hr.to_kafka(topic, servers=kafka.address, writers=1))
    place.land("1", ("1", "a", 5, "10:05:00"))
    _run(copy, place.checkpoint, spark)
    flow = BatchLog(LocalStorage(place.checkpoint / "copy")).identity["id"]
    admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
    groups = [group.group_id for group in admin.list_consumer_groups().result(30).valid if flow in group.group_id]
    assert len(groups) == 1
    for deleted in admin.delete_consumer_groups(groups).values():
        deleted.result(30)
    place.land("2", ("2", "a", 5, "10:05:00"))
    with pytest.raises(hr.HeadraceError, match=r"\[MARK_LOST\].*should be batch 0 or 1, found none"):
        _run(copy, place.checkpoint, spark)
    assert [row["id"] for row in _messages(kafka, topic)] == ["1"]
    assert len(history.read(place.checkpoint / "copy")) == 1


@pytest.mark.full
def test_a_topic_that_was_made_anew_has_lost_its_marks(
    place: Any, kafka: Service, new_topic: Callable[..., str], spark: SparkSession
) -> None:
    topic = new_topic()
    copy = _copying(place.landing, hr.to_kafka(topic, servers=kafka.address, writers=1))
    place.land("1", ("1", "a", 5, "10:05:00"))
    _run(copy, place.checkpoint, spark)
    admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    while topic in admin.list_topics(timeout=30).topics:
        time.sleep(0.1)
    place.land("2", ("2", "a", 5, "10:05:00"))
    with pytest.raises(hr.HeadraceError, match=r"\[TOPIC_UNKNOWN\]"):
        _run(copy, place.checkpoint, spark)
    new_topic()
    with pytest.raises(hr.HeadraceError, match=r"\[MARK_LOST\]"):
        _run(copy, place.checkpoint, spark)
    assert _messages(kafka, topic) == []


@pytest.mark.full
def test_sinks_and_the_number_of_their_writers_may_change_from_start_to_start(
    place: Any,
    name: str,
    kafka: Service,
    postgres: Service,
    new_topic: Callable[..., str],
    database: psycopg.Connection[Any],
    spark: SparkSession,
) -> None:
    topic = new_topic()

    def stream(**how: Any) -> Any:
        return hr.to_kafka(topic, servers=kafka.address, key="id", **how)

    table = hr.to_postgres(name, dsn=postgres.url)
    starts: list[tuple[Any, ...]] = [
        (stream(writers=1),),
        (stream(writers=3), table),
        (table,),
        (stream(writers=1), table),
        (stream(guarantee="at_least_once"),),
        (stream(writers=2), table),
    ]
    for number, sinks in enumerate(starts):
        ids = [f"{number}.{row}" for row in range(5)]
        place.land(str(number), *[(identity, "a", 5, "10:05:00") for identity in ids])
        _run(_copying(place.landing, *sinks), place.checkpoint, spark)
    sent = sorted(row["id"] for row in _messages(kafka, topic))
    assert sent == [f"{number}.{row}" for number in (0, 1, 3, 4, 5) for row in range(5)]
    kept = sorted(row[0] for row in database.execute(f"select id from {name}"))
    assert kept == [f"{number}.{row}" for number in (1, 2, 3, 5) for row in range(5)]


@pytest.mark.full
def test_a_new_checkpoint_is_a_new_flow_that_writes_everything_again(
    place: Any,
    name: str,
    postgres: Service,
    redis_server: Service,
    database: psycopg.Connection[Any],
    spark: SparkSession,
) -> None:
    sinks = (
        hr.to_postgres(name, dsn=postgres.url),
        hr.to_postgres(f"{name}_latest", dsn=postgres.url, upsert_on="id"),
        hr.to_redis(redis_server.url, key=name + ":{id}"),
    )
    place.land("1", ("1", "a", 5, "10:05:00"))
    for checkpoint in ("first", "second"):
        _run(_copying(place.landing, *sinks), place.root / checkpoint, spark)
        for output in ("main#1", "main#2", "main#3"):
            assert _accounts(place.root / checkpoint / "copy", output)["written"] == 1
    count = "select (select count(*) from {0}), (select count(*) from {0}_latest)"
    assert database.execute(count.format(name)).fetchone() == (2, 1)


@pytest.mark.full
def test_empty_batches_leave_no_mark_and_break_nothing(
    place: Any,
    name: str,
    kafka: Service,
    postgres: Service,
    new_topic: Callable[..., str],
    database: psycopg.Connection[Any],
    spark: SparkSession,
) -> None:
    topic = new_topic()
    sinks = (
        hr.to_kafka(topic, servers=kafka.address, writers=1),
        hr.to_postgres(name, dsn=postgres.url, writers=1),
    )

    @hr.pipeline(name="copy")
    def copy(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments", files_per_batch=1)
        hr.write("copy", (rows.where("amount > 0"), *sinks))

    marked = "select batch from headrace_marks where target = %s"
    for number, (amount, mark) in enumerate([(0, None), (5, 1), (0, 1), (0, 1), (7, 4)]):
        place.land(str(number), (str(number), "a", amount, "10:05:00"))
        if number != 2:
            _run(copy, place.checkpoint, spark)
            assert database.execute(marked, [name]).fetchall() == [(mark,)]
    assert sorted(row["id"] for row in _messages(kafka, topic)) == ["1", "4"]
    assert sorted(row[0] for row in database.execute(f"select id from {name}")) == ["1", "4"]
    batches = history.read(place.checkpoint / "copy")
    assert [entry.account.sinks["main#1"].out for entry in batches] == [0, 1, 0, 0, 1]


def test_a_stop_while_a_sink_is_away_cancels_the_batch_and_the_next_start_runs_it_again(
    place: Any, spark: SparkSession
) -> None:
    flow = LocalStorage(place.checkpoint / "copy")
    with running("redis") as server:
        copy = _copying(place.landing, hr.to_redis(server.url, key="{id}"))
        place.land("1", ("1", "a", 5, "10:05:00"))
        started = copy.start(checkpoint=place.checkpoint, mode=hr.micro_batch("100 milliseconds"), spark=spark)
        _until(lambda: started.status()["copy"] is not None)
        server.kill()
        place.land("2", ("2", "a", 7, "10:06:00"))
        _until(lambda: outages(flow) != [])
        started.stop()
        log = BatchLog(flow)
        assert log.record is not None
        assert log.next_batch == log.record.batch == 1
        server.start()
        place.land("3", ("3", "a", 9, "10:07:00"))
        _run(copy, place.checkpoint, spark)
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            kept = {key: client.hget(key, "amount") for key in client.scan_iter("[0-9]*")}
    assert kept == {"1": "5", "2": "7", "3": "9"}
    batches = history.read(place.checkpoint / "copy")
    sinks = [entry.account.sinks["main"] for entry in batches]
    # A task that was cancelled may still have written when the server came back; then its batch finds the mark.
    assert [sink.written + sink.already_marked for sink in sinks] == [1, 1, 1]
    assert batches[1].clock == log.record.clock
    assert outages(flow) == []


def _until(said: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not said():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def test_a_second_start_is_refused_with_the_holders_name_and_old_signs_are_cleared(
    place: Any, spark: SparkSession
) -> None:
    copy = _copying(place.landing, hr.to_files(place.root / "out"))
    place.land("1", ("1", "a", 5, "10:05:00"))
    OutageMarker(LocalStorage(place.checkpoint / "copy"), "headrace.copy.main.0", "kafka topic 'old'").begin(
        "no answer"
    )
    OutageMarker(LocalStorage(place.checkpoint), "source.payments", "kafka topic 'older'").begin("no answer")
    started = copy.start(checkpoint=place.checkpoint, mode=hr.micro_batch("200 milliseconds"), spark=spark)
    try:
        assert outages(LocalStorage(place.checkpoint / "copy")) == outages(LocalStorage(place.checkpoint)) == []
        holder = rf"\[CHECKPOINT_IN_USE\].*process {os.getpid()} on {socket.gethostname()}"
        with pytest.raises(hr.HeadraceError, match=holder):
            copy.start(checkpoint=place.checkpoint, spark=spark)
        _until(lambda: started.status()["copy"] is not None)
    finally:
        started.stop()
    assert committed_rows(place.root / "out")["id"].to_list() == ["1"]
    assert isinstance(committed_rows(place.root / "out"), pl.DataFrame)
    shown = CliRunner().invoke(app, ["status", str(place.checkpoint)], env={"COLUMNS": "140"}).stdout
    assert "copy" in shown
    assert "waiting" not in shown
