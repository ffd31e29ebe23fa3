"""Tables of a real PostgreSQL followed, joined, aggregated and materialised into real stores, and an outbox relayed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from pyspark.sql import SparkSession

import headrace as hr
from headrace.services.service import Service
from tests.topics import create_topic, messages

pytestmark = [pytest.mark.spark, pytest.mark.full]

KEY = "order_id"


@pytest.fixture
def shop(postgres: Service) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """The schema of a shop of this test's own, which is also its slot, and a connection."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"create schema {name}")
        connection.execute(f"set search_path = {name}")
        connection.execute("create table customers (customer_id int primary key, city text)")
        connection.execute("create table orders (order_id int primary key, customer_id int, amount bigint)")
        # An order may move to another customer, and a sum must know what it was.
        connection.execute("alter table orders replica identity full")
        connection.execute("create table outbox (id bigserial primary key, order_id int, payload text)")
        yield name, connection
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [name]
        )
        connection.execute(f"drop publication if exists {name}")


def _pipeline(name: str, root: Path, dsn: str, redis_url: str, servers: str) -> Any:
    @hr.pipeline(name="shop")
    def followed(spark: SparkSession) -> None:
        tables = [f"{name}.{table}" for table in ("customers", "orders", "outbox")]
        found = hr.read_postgres_changes(spark, tables, dsn=dsn, slot=name)
        timed = hr.event_time("committed_at")
        customers, orders, outbox = (found[table].transform(timed).drop("transaction") for table in tables)
        customers = customers.transform(hr.materialize("customers", key="customer_id", before_images=True))
        whole = orders.drop("unchanged")
        whose = hr.table_join("whose", on="customer_id", left_key=KEY, right_key="customer_id", how="left")
        # An order that moves leaves the join twice, from two key groups, in any order.
        view = whose(whole, customers).transform(hr.materialize("view", key=KEY))
        rows = view.select(KEY, "customer_id", "amount", "city", "change")
        hr.write(
            "view",
            (
                rows,
                hr.to_postgres(f"{name}.view", dsn=dsn, upsert_on=KEY),
                hr.to_delta(root / "view", upsert_on=KEY),
                hr.to_redis(redis_url, key=f"{name}:{{order_id}}"),
            ),
        )
        spend = hr.table_aggregate("spend", key="customer_id", row_key=KEY)
        spend = spend.agg(orders="count(*)", total="sum(amount)", most="max(amount)")
        totals = whole.transform(spend).select("customer_id", "orders", "total", "most", "change")
        hr.write("spend", (totals, hr.to_postgres(f"{name}.spend", dsn=dsn, upsert_on="customer_id")))
        sent = outbox.transform(hr.outbox("sent", key=KEY)).select("key", "value")
        hr.write("relay", (sent, hr.to_kafka(name, servers=servers, key="key", format="raw")))

    return followed


def _change(database: psycopg.Connection[Any]) -> None:
    """Orders and customers come, change, move and go; every order says so in the outbox, in the same transaction."""
    with database.transaction():
        database.execute("insert into customers select g, 'city ' || g from generate_series(1, 4) g")
        database.execute("insert into orders select g, g % 5, g * 10 from generate_series(1, 20) g")
        database.execute("insert into outbox (order_id, payload) select g, 'placed' from generate_series(1, 20) g")


def _change_again(database: psycopg.Connection[Any]) -> None:
    with database.transaction():
        database.execute("update orders set customer_id = 4 where order_id in (1, 2, 3)")
        database.execute("update orders set amount = amount + 1 where order_id <= 10")
        database.execute("delete from orders where order_id in (5, 10, 20)")
        database.execute("insert into outbox (order_id, payload) values (1, 'moved'), (5, 'cancelled')")
    database.execute("update customers set city = 'Ulm' where customer_id = 4")
    database.execute("delete from customers where customer_id = 2")
    database.execute("update orders set order_id = 100 where order_id = 4")
    database.execute("delete from orders where customer_id = 3")
    database.execute("delete from outbox")


def test_the_stores_hold_what_queries_of_the_source_give_and_messages_keep_their_order(
    shop: tuple[str, psycopg.Connection[Any]],
    postgres: Service,
    redis_server: Service,
    kafka: Service,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    name, database = shop
    create_topic(kafka.address, name, 2)
    followed = _pipeline(name, tmp_path, postgres.dsn, redis_server.url, kafka.address)
    for change in (_change, _change_again):
        change(database)
        followed.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)
        _compare(name, database, redis_server, spark, tmp_path)
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for key, value in messages(kafka.address, name):
        by_key.setdefault(key, []).append(value)
    placed = {str(order).encode(): [b"placed"] for order in range(1, 21)}
    assert by_key == {**placed, b"1": [b"placed", b"moved"], b"5": [b"placed", b"cancelled"]}


def _compare(
    name: str, database: psycopg.Connection[Any], redis_server: Service, spark: SparkSession, root: Path
) -> None:
    joined = "select order_id, o.customer_id, amount, city from orders o left join customers using (customer_id)"
    expected = database.execute(f"{joined} order by 1").fetchall()
    columns = (KEY, "customer_id", "amount", "city")
    assert database.execute(f"select {', '.join(columns)} from view order by 1").fetchall() == expected
    delta = spark.read.format("delta").load(str(root / "view")).select(*columns).orderBy(KEY).collect()
    assert [tuple(row) for row in delta] == expected
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        kept = [client.hgetall(key) for key in client.scan_iter(f"{name}:*", count=1000)]
    shown = [
        {column: str(value) for column, value in zip(columns, row, strict=True) if value is not None}
        for row in expected
    ]
    assert sorted(kept, key=lambda row: int(row[KEY])) == shown
    grouped = "select customer_id, count(*), sum(amount)::bigint, max(amount) from orders group by 1 order by 1"
    totals = database.execute("select customer_id, orders, total, most from spend order by 1").fetchall()
    assert totals == database.execute(grouped).fetchall()
