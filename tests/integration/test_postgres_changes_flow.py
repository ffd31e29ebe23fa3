"""``hr.read_postgres_changes`` in pipelines: snapshots, restarts, replays, tables that change, and what is refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from polars import read_parquet
from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.postgres.changes.source import read_postgres_changes
from headrace.services.service import Service
from tests.integration.changes import feed_of, table_of

pytestmark = pytest.mark.spark


@pytest.fixture
def name() -> str:
    """A name of this test's own, for tables, a slot and outputs."""
    return f"t_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def database(postgres: Service, name: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection outside a transaction; the slot and publication that a test leaves are removed."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        yield connection
        found = "from pg_replication_slots where slot_name = %s"
        connection.execute(f"select pg_drop_replication_slot(slot_name) {found}", (name,))
        connection.execute(f"drop publication if exists {name}")


@pytest.mark.full
def test_tables_are_read_from_their_snapshot_on_by_every_flow_and_by_one_that_comes_later(
    postgres: Service, database: psycopg.Connection[Any], name: str, spark: SparkSession, tmp_path: Path
) -> None:
    customers = f"{name}_customers"
    database.execute(f"create table {name} (id int primary key, customer int, paid numeric(10,2), tags text[])")
    database.execute(f"create table {customers} (id int primary key, name text)")
    database.execute(f"insert into {name} select g, g % 7, g / 4.0, array['a', null] from generate_series(1, 500) g")
    database.execute(f"insert into {customers} select g, 'c' || g from generate_series(0, 6) g")

    @hr.pipeline(name="shop")
    def shop(spark: SparkSession, later: bool = False) -> None:
        tables = read_postgres_changes(spark, [name, customers], dsn=postgres.url, slot=name)
        hr.write("orders", tables[name].transform(hr.event_time("committed_at")), hr.to_memory(name))
        hr.write("customers", tables[customers], hr.to_memory(customers))
        if later:
            again = f"{name}_again"
            hr.write("again", tables[name].select("id", "change", "position", "paid", "unchanged"), hr.to_memory(again))

    def run(**parameters: Any) -> None:
        shop.run(checkpoint=tmp_path, mode=hr.available_now(), spark=spark, **parameters)

    run()
    assert len(hr.memory(name)) == 500
    with database.transaction():
        database.execute(f"update {name} set paid = 1 where id <= 10")
        database.execute(f"delete from {customers} where id = 3")
        database.execute(f"update {name} set id = -id where id = 400")
    with pytest.warns(RuntimeWarning, match="flow 'again' is new in checkpoint"):
        run(later=True)
    columns = ["id", "customer", "paid", "tags"]
    there = {row[0]: row for row in database.execute(f"select {', '.join(columns)} from {name}").fetchall()}
    assert table_of(hr.memory(name), "id", columns) == there
    assert table_of(hr.memory(f"{name}_again"), "id", ["id", "paid"]) == {
        key: (row[0], row[2]) for key, row in there.items()
    }
    assert sorted(table_of(hr.memory(customers), "id", ["id"])) == [0, 1, 2, 4, 5, 6]
    last = hr.memory(name)[-12:]
    assert [row["change"] for row in last] == ["update_after"] * 10 + ["delete", "insert"]
    assert len({row["transaction"] for row in last}) == 1
    database.execute(f"alter table {name} add column note text")
    database.execute(f"update {name} set note = 'new', paid = 2 where id = 1")
    run(later=True)
    assert (hr.memory(name)[-1]["id"], float(hr.memory(name)[-1]["paid"])) == (1, 2.0)
    letters = read_parquet(sorted((tmp_path / "orders" / "dead_letters").glob("*/*.parquet")))
    assert letters["reason"].to_list() == ["COLUMN_ADDED"]
    assert "now has a column note" in letters["detail"][0]


def test_a_table_that_is_emptied_or_altered_stops_the_flow_with_the_reason(
    postgres: Service, database: psycopg.Connection[Any], name: str, spark: SparkSession, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key, n int)")

    @hr.pipeline(name="shop")
    def shop(spark: SparkSession, on_truncate: Any = "stop") -> None:
        changes = read_postgres_changes(spark, name, dsn=postgres.url, slot=name, on_truncate=on_truncate)
        hr.write("orders", changes, hr.to_memory(name))

    def run(**parameters: Any) -> None:
        shop.run(checkpoint=tmp_path, mode=hr.available_now(), spark=spark, **parameters)

    run()
    database.execute(f"truncate {name}")
    with pytest.raises(hr.HeadraceError, match="was emptied with TRUNCATE") as raised:
        run()
    assert raised.value.id == "TABLE_TRUNCATED"
    database.execute(f"insert into {name} values (1, 1)")
    run(on_truncate="dead_letter")
    assert [row["id"] for row in hr.memory(name)] == [1]
    letters = read_parquet(sorted((tmp_path / "orders" / "dead_letters").glob("*/*.parquet")))
    assert letters["reason"].to_list() == ["TABLE_TRUNCATED"]
    database.execute(f"alter table {name} alter column n type text; insert into {name} values (2, 'two')")
    with pytest.raises(hr.HeadraceError, match="column 'n' is no longer integer") as raised:
        run(on_truncate="dead_letter")
    assert raised.value.id == "SCHEMA_CHANGED"


def test_a_table_that_was_renamed_stops_the_flow_behind_what_was_logged_before(
    postgres: Service, database: psycopg.Connection[Any], name: str, spark: SparkSession, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key)")
    database.execute(f"insert into {name} values (1)")

    @hr.pipeline(name="shop")
    def shop(spark: SparkSession) -> None:
        hr.write("orders", read_postgres_changes(spark, name, dsn=postgres.url, slot=name), hr.to_memory(name))

    feed = feed_of(postgres, tmp_path / "landing" / name, name, [name])
    feed.start()
    feed.stop()
    database.execute(f"alter table {name} rename to {name}_old; insert into {name}_old values (2)")
    for _ in range(2):
        with pytest.raises(hr.HeadraceError, match=f"was renamed to public.{name}_old") as raised:
            shop.run(checkpoint=tmp_path, mode=hr.available_now(), spark=spark)
        assert raised.value.id == "SCHEMA_CHANGED"
        assert [row["id"] for row in hr.memory(name)] == [1]


def test_a_slot_that_is_dropped_while_the_pipeline_runs_stops_it(
    postgres: Service, database: psycopg.Connection[Any], name: str, spark: SparkSession, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key)")

    @hr.pipeline(name="shop")
    def shop(spark: SparkSession) -> None:
        hr.write("orders", read_postgres_changes(spark, name, dsn=postgres.url, slot=name), hr.to_memory(name))

    running = shop.start(checkpoint=tmp_path, mode=hr.micro_batch("100 milliseconds"), spark=spark)
    with psycopg.connect(postgres.dsn, autocommit=True) as other:
        while True:
            try:
                other.execute("select pg_drop_replication_slot(%s)", (name,))
                break
            except psycopg.errors.ObjectInUse:
                continue
    with pytest.raises(hr.HeadraceError) as raised:
        running.wait(60)
    assert raised.value.id in ("SLOT_LOST", "SOURCE_FAILED")
    assert name in str(raised.value)


def test_one_slot_in_two_calls_and_a_table_kept_by_changes_as_they_come_are_refused(
    postgres: Service, database: psycopg.Connection[Any], name: str, spark: SparkSession
) -> None:
    def error_id(define: Callable[[SparkSession], None]) -> str:
        (finding,) = hr.pipeline(name="shop")(define).check(spark=spark)
        return finding.id

    def changes(spark: SparkSession, table: str) -> Any:
        return read_postgres_changes(spark, table, dsn=postgres.url, slot=name, schema="id INT, n INT")

    def twice(spark: SparkSession) -> None:
        for table in ("orders", "customers"):
            hr.write(table, changes(spark, table), hr.to_memory(table))

    def straight(sink: Any) -> Callable[[SparkSession], None]:
        return lambda spark: hr.write("orders", changes(spark, "orders"), sink)

    assert error_id(twice) == "SLOT_READ_TWICE"
    for sink in (
        hr.to_postgres("t", dsn=postgres.dsn, upsert_on="id"),
        hr.to_delta("t", upsert_on="id"),
        hr.to_redis("redis://localhost", key="{id}"),
    ):
        assert error_id(straight(sink)) == "CHANGELOG_NOT_MATERIALIZED"


@pytest.mark.parametrize(
    ("definition", "schema", "id", "words"),
    [
        (None, "id INT", "TABLE_MISSING", "does not exist"),
        ("(id int)", "id INT", "KEY_MISSING", "REPLICA IDENTITY FULL"),
        ("(id int primary key)", "id INT, n INT", "COLUMN_MISSING", "has no replicated column 'n'"),
        ("(id bigint primary key)", "id INT", "COLUMN_TYPE", "INT cannot hold 'id', bigint"),
    ],
)
def test_what_is_wrong_with_a_table_is_told_before_the_first_batch(
    postgres: Service,
    database: psycopg.Connection[Any],
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    definition: str | None,
    schema: str,
    id: str,
    words: str,
) -> None:
    if definition is not None:
        database.execute(f"create table {name} {definition}")

    @hr.pipeline(name="shop")
    def shop(spark: SparkSession) -> None:
        changes = read_postgres_changes(spark, name, dsn=postgres.url, slot=name, schema=schema)
        hr.write("orders", changes, hr.to_memory(name))

    with pytest.raises(hr.HeadraceError, match=words) as raised:
        shop.start(checkpoint=tmp_path, mode=hr.available_now(), spark=spark)
    assert raised.value.id == id
    assert database.execute("select 1 from pg_publication where pubname = %s", (name,)).fetchall() == []


def test_a_user_who_may_not_replicate_and_a_server_that_is_away_are_told(
    postgres: Service, database: psycopg.Connection[Any], name: str, spark: SparkSession, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key)")
    database.execute(f"create role {name} login password 'secret'")
    database.execute(f"grant select on {name} to {name}")
    port = postgres.port

    @hr.pipeline(name="shop")
    def shop(spark: SparkSession, port: int) -> None:
        dsn = f"host=127.0.0.1 port={port} user={name} dbname=postgres"
        changes = read_postgres_changes(spark, name, dsn=dsn, password="secret", slot=name, schema="id INT")
        hr.write("orders", changes, hr.to_memory(name))

    with pytest.raises(hr.HeadraceError, match="REPLICATION") as raised:
        shop.start(checkpoint=tmp_path, mode=hr.available_now(), spark=spark, port=port)
    assert raised.value.id == "SOURCE_REFUSED"
    with pytest.raises(hr.HeadraceError) as raised:
        shop.start(checkpoint=tmp_path, mode=hr.available_now(), spark=spark, port=1)
    assert raised.value.id == "SOURCE_UNREACHABLE"
    assert "secret" not in str(raised.value)
    database.execute(f"drop owned by {name}; drop role {name}")


@pytest.mark.parametrize(
    ("given", "id"),
    [
        ({"tables": []}, "TABLES_INVALID"),
        ({"tables": ["orders", "public.orders"]}, "TABLES_INVALID"),
        ({"tables": ["orders"], "schema": {"others": "id INT"}}, "TABLES_INVALID"),
        ({"tables": "orders", "slot": "My Slot"}, "SLOT_INVALID"),
        ({"tables": "orders", "on_truncate": "ignore"}, "ON_TRUNCATE_UNKNOWN"),
        ({"tables": "orders", "retention": "soon"}, "DURATION_UNREADABLE"),
        ({"tables": "orders", "retention_bytes": 0}, "RETENTION_INVALID"),
        ({"tables": "orders", "dsn": "db/shop"}, "DSN_INVALID"),
        ({"tables": "orders", "schema": "id INT, change STRING"}, "COLUMN_EXISTS"),
    ],
)
def test_mistakes_in_a_definition_are_told_without_a_server(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any], id: str
) -> None:
    @hr.pipeline(name="shop")
    def shop(spark: SparkSession) -> None:
        read_postgres_changes(spark, **{"dsn": "host=127.0.0.1 port=1", "slot": "shop", "schema": "id INT", **given})

    with pytest.raises(hr.DefinitionError) as raised:
        shop.define(spark, tmp_path)
    assert raised.value.id == id
