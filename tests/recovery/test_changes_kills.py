"""Tables that are followed and an outbox that is relayed while the job is killed again and again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from headrace.connectors.servers import running
from headrace.observe import history
from tests.topics import create_topic, messages

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(3600)]

PARTITIONS = 3
ORDERS = 40


def _shop(dsn: str, stop: threading.Event, seed: int) -> None:
    """Orders that come, change, move and go, each with its message in the same transaction; some are taken back."""
    chance = random.Random(seed)
    with psycopg.connect(dsn) as connection:
        while not stop.is_set():
            order = chance.randrange(ORDERS)
            with connection.transaction(force_rollback=chance.random() < 0.1):
                # One transaction of an order after the other, as any shop would do it.
                connection.execute("select pg_advisory_xact_lock(%s)", (order,))
                state = connection.execute("select n from orders where id = %s", (order,)).fetchone()
                if state is None:
                    connection.execute("insert into orders values (%s, 0, null)", (order,))
                elif chance.random() < 0.1:
                    connection.execute("delete from orders where id = %s", (order,))
                else:
                    note = chance.choice([None, "ä", "x" * 5000])
                    connection.execute("update orders set n = n + 1, note = %s where id = %s", (note, order))
                connection.execute(
                    "insert into outbox (order_id, payload) "
                    "select %s, (count(*) + 1)::text from sent where order_id = %s",
                    (order, order),
                )
                connection.execute("insert into sent (order_id) values (%s)", (order,))
            if chance.random() < 0.2:
                connection.execute("delete from outbox where order_id = %s", (order,))
                connection.commit()
            time.sleep(chance.uniform(0, 0.02))


def test_tables_and_outbox_are_exact_and_in_order_after_every_kill(
    new_job: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    job = new_job("changes", "changes_job.py")
    chance = random.Random(5)
    kills = request.config.getoption("--kills")
    with running("postgres") as postgres, running("kafka") as kafka, psycopg.connect(postgres.dsn) as database:
        database.autocommit = True
        database.execute("create table orders (id int primary key, n int, note text)")
        database.execute("create table outbox (id bigserial primary key, order_id int, payload text)")
        database.execute("create table sent (order_id int)")
        database.execute("insert into orders select g, 0, 'before' from generate_series(0, 19) g")
        create_topic(kafka.address, "orders", PARTITIONS)
        arguments = ("--dsn", postgres.dsn, "--servers", kafka.address)
        # The slot is there before the shop opens: rows of the outbox that are gone by then are nobody's messages.
        assert job.run(*arguments, "--to-the-end", timeout=300) == 0, job.said()
        stop = threading.Event()
        shops = [threading.Thread(target=_shop, args=(postgres.dsn, stop, seed)) for seed in range(2)]
        for shop in shops:
            shop.start()
        try:
            for _ in range(kills):
                with job.running(*arguments) as process:
                    relay = job.root / "checkpoint" / "relay"
                    before = len(history.read(relay))
                    while len(history.read(relay)) < before + 2 and process.poll() is None:
                        time.sleep(0.05)
                    time.sleep(chance.uniform(0, 1.5))
                    assert process.poll() is None, job.said()
        finally:
            stop.set()
            for shop in shops:
                shop.join()
        assert job.run(*arguments, "--to-the-end", timeout=600) == 0, job.said()
        expected = {
            str(order).encode(): [str(number + 1).encode() for number in range(count)]
            for order, count in database.execute("select order_id, count(*) from sent group by 1").fetchall()
        }
        there = {row[0]: row for row in database.execute("select id, n, note from orders").fetchall()}
        sent: dict[bytes | None, list[bytes | None]] = {}
        for key, value in messages(kafka.address, "orders"):
            sent.setdefault(key, []).append(value)
        assert sent == expected
        assert sum(map(len, sent.values())) > 100
        table: dict[int, tuple[Any, ...]] = {}
        rows = job.listed("out").sort("position", maintain_order=True).to_dicts()
        for row in rows:
            if row["change"] in ("insert", "update_after"):
                assert row["unchanged"] is None
                table[row["id"]] = (row["id"], row["n"], row["note"])
            else:
                del table[row["id"]]
        assert table == there
        # Each change is there once: a position names one change of this table.
        assert len({row["position"] for row in rows}) == len(rows)
