"""Lookups in a real Redis and a real PostgreSQL, and in a real flow: what history and ``explain`` say of them."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
import redis
from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.postgres.lookup import postgres_lookup
from headrace.connectors.redis.lookup import redis_lookup
from headrace.observe import history
from headrace.observe.account import StepCounts
from headrace.operators.lookup.client import cache
from headrace.operators.lookup.lookup import lookup
from headrace.operators.lookup.requests import breaker
from headrace.operators.lookup.service import LARGEST_ANSWER
from headrace.services.service import Service
from tests.unit.conftest import Batches

OUTPUT = "name STRING, tier INT, share DECIMAL(5, 2), active BOOLEAN, since TIMESTAMP, born DATE"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Batches]:
    """Runs a batch of frames through a lookup."""
    batches = Batches(tmp_path)
    yield batches
    batches.close()


@pytest.fixture
def prefix() -> str:
    """The beginning of the names of a test's own keys."""
    return uuid.uuid4().hex[:8]


@pytest.fixture
def customers(postgres: Service) -> Iterator[psycopg.Connection[Any]]:
    """A table of 2,500 customers."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(
            "create table customers as select id, 'n' || id as name, (id % 5)::int as tier, id % 100 + 0.25 as share, "
            "id % 2 = 0 as active, timestamptz '2026-01-02 03:04:05+01' as since, date '2000-02-29' as born "
            "from generate_series(1::bigint, 2500) id"
        )
        yield connection
        connection.execute("drop table customers")


def test_a_hash_of_redis_becomes_the_declared_columns(redis_server: Service, run: Batches, prefix: str) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        fields = {"name": "Änn", "tier": "3", "share": "12.5", "active": "true", "since": "2026-01-02T03:04:05+01:00"}
        client.hset(f"{prefix}:1", mapping={**fields, "born": "2000-02-29", "more": "x"})
        client.hset(f"{prefix}:2", mapping={"tier": "gold"})
        client.hset(f"{prefix}:3", mapping={"name": b"\xff"})
        client.set(f"{prefix}:4", "no hash")
    how = redis_lookup(redis_server.url, key=prefix + ":{id}")
    step = lookup("customer", how, on="id", output=OUTPUT, on_failure="dead_letter")
    made = run(step, pl.DataFrame({"id": [1, 2, 3, 4, 5, 1]}))
    answer = {
        "name": "Änn",
        "tier": 3,
        "share": Decimal("12.50"),
        "active": True,
        "since": datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC),
        "born": date(2000, 2, 29),
    }
    assert made.rows == [{"id": 1, **answer}, {"id": 5, **dict.fromkeys(answer)}, {"id": 1, **answer}]
    assert [(letter["reason"], letter["raw"]) for letter in made.letters] == [
        ("ANSWER_WRONG_TYPE", b'{"id":2}'),
        ("ANSWER_WRONG_TYPE", b'{"id":3}'),
        ("ANSWER_WRONG_TYPE", b'{"id":4}'),
    ]
    assert (made.counters["keys"], made.counters["calls"], made.counters["failures"]) == (5, 1, 3)


def test_json_in_redis_and_what_is_none(redis_server: Service, run: Batches, prefix: str) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set(f"{prefix}:a", json.dumps({"name": "Ann", "tier": 3}))
        client.set(f"{prefix}:b", "{")
        client.set(f"{prefix}:c", b" " * (LARGEST_ANSWER + 1))
    how = redis_lookup(redis_server.url, key=prefix + ":{id}", value="json")
    step = lookup("customer", how, on="id", output="name STRING, tier INT", on_failure="null")
    made = run(step, pl.DataFrame({"id": ["a", "b", "c", "d"]}))
    assert [(row["name"], row["tier"]) for row in made.rows] == [("Ann", 3), (None, None), (None, None), (None, None)]
    reasons = [None if row["customer_failure"] is None else row["customer_failure"].split(":")[0] for row in made.rows]
    assert reasons == [None, "ANSWER_NOT_JSON", "ANSWER_TOO_LARGE", None]


def test_ten_thousand_keys_of_redis_are_forty_calls(redis_server: Service, run: Batches, prefix: str) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        commands = client.pipeline(transaction=False)
        for n in range(10_000):
            commands.hset(f"{prefix}:{n}", "tier", n)
        commands.execute()
    step = lookup(
        "tier", redis_lookup(redis_server.url, key=prefix + ":{id}"), on="id", output="tier INT", on_failure="stop",
        timeout="20 seconds",
    )  # fmt: skip
    made = run(step, pl.DataFrame({"id": range(10_000)}))
    assert [row["tier"] for row in made.rows] == list(range(10_000))
    assert made.counters["calls"] == 40


def test_a_redis_that_is_not_there_fails_the_rows_and_opens_the_breaker(run: Batches) -> None:
    how = redis_lookup("redis://127.0.0.1:1", key="u:{id}")
    step = lookup(
        "tier", how, on="id", output="tier INT", on_failure="dead_letter", breaker=breaker(after=2), timeout="1 minute"
    )
    made = run(step, pl.DataFrame({"id": range(10)}))
    assert len(made.letters) == 10
    assert (made.counters["calls"], made.counters["breaker_open"]) == (2, 1)


def test_many_keys_of_postgresql_are_one_query(
    postgres: Service, customers: psycopg.Connection[Any], run: Batches
) -> None:
    query = "select * from customers where id = any(%s)"
    how = postgres_lookup(postgres.dsn, query)
    step = lookup("customer", how, on="id", output=OUTPUT, on_failure="dead_letter", timeout="20 seconds")
    made = run(step, pl.DataFrame({"id": [n % 3000 + 1 for n in range(6000)]}))
    assert made.letters == []
    assert [row["name"] for row in made.rows] == [f"n{n + 1}" if n < 2500 else None for n in range(3000)] * 2
    seven = {name: value for name, value in made.rows[6].items() if name != "id"}
    assert seven == {
        "name": "n7",
        "tier": 2,
        "share": Decimal("7.25"),
        "active": False,
        "since": datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC),
        "born": date(2000, 2, 29),
    }
    assert (made.counters["keys"], made.counters["calls"]) == (3000, 3)


def test_a_key_of_two_columns_is_asked_for_in_postgresql(
    postgres: Service, customers: psycopg.Connection[Any], run: Batches
) -> None:
    query = "select id, name, tier from customers where (id, name) in (select * from unnest(%s::bigint[], %s::text[]))"
    step = lookup("tier", postgres_lookup(postgres.dsn, query), on=["id", "name"], output="tier INT", on_failure="stop")
    made = run(step, pl.DataFrame({"id": [1, 1, 2], "name": ["n1", "n2", "n2"]}))
    assert [row["tier"] for row in made.rows] == [1, None, 2]


@pytest.mark.parametrize(
    ("query", "reason", "timeout", "calls"),
    [
        ("select id, nothing from customers where id = any(%s)", "LOOKUP_FAILED", 20, 1),
        ("select tier from customers where id = any(%s)", "ANSWER_WITHOUT_KEY", 20, 1),
        ("select id::text, tier from customers where id = any(%s)", "ANSWER_NOT_ASKED", 20, 1),
        ("select id, tier from customers, generate_series(1, 2) where id = any(%s)", "ANSWER_TWICE", 20, 1),
        ("select id, name as tier from customers where id = any(%s)", "ANSWER_WRONG_TYPE", 20, 1),
        ("select id, 1 as tier, pg_sleep(30) from customers where id = any(%s)", "LOOKUP_TIMEOUT", 4, 2),
    ],
)
def test_what_a_query_cannot_answer_is_said_and_asked_again_only_where_that_may_help(
    postgres: Service,
    customers: psycopg.Connection[Any],
    run: Batches,
    query: str,
    reason: str,
    timeout: int,
    calls: int,
) -> None:
    step = lookup(
        "tier", postgres_lookup(postgres.dsn, query), on="id", output="tier INT", on_failure="dead_letter",
        timeout=f"{timeout} seconds", retries=1,
    )  # fmt: skip
    made = run(step, pl.DataFrame({"id": [1, 2, 1]}))
    assert [letter["reason"] for letter in made.letters] == [reason] * 3
    assert made.counters["calls"] == calls
    # Nobody waits for a query that sleeps.
    assert made.seconds < 30


@pytest.mark.full
@pytest.mark.spark
def test_a_lookup_in_a_flow_is_counted_explained_and_can_be_taken_out_again(
    spark: SparkSession, redis_server: Service, tmp_path: Path, prefix: str
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        for n in range(100):
            client.hset(f"{prefix}:{n}", "tier", n % 3)
    landing = tmp_path / "in"
    landing.mkdir()
    how = redis_lookup(redis_server.url, key=prefix + ":{id}")

    async def failing(key: int) -> dict[str, Any]:
        await asyncio.sleep(0)
        if key == 13:
            raise ConnectionError("not this one")
        return {"lucky": True}

    tiers = lookup(
        "tiers", how, on="id", output="tier INT", on_failure="stop", cache=cache(ttl="1 hour"), timeout="1 minute"
    )
    luck = lookup(
        "luck", failing, on="id", output="lucky BOOLEAN", on_failure="dead_letter", retries=0, timeout="1 minute"
    )
    hourly = hr.tumbling("hourly", size="1 hour", key="lucky").agg(n="count(*)").late(hr.drop())

    def land(name: str, hour: int) -> None:
        lines = [json.dumps({"id": n % 100, "at": f"2025-01-01T{hour:02d}:00:00Z"}) for n in range(1000)]
        (landing / f".{name}").write_text("\n".join(lines))
        (landing / f".{name}").rename(landing / f"{name}.json")

    def define(with_tiers: bool) -> Any:
        @hr.pipeline
        def enriched(spark: SparkSession) -> None:
            rows = hr.read_files(spark, landing, format="json", schema="id BIGINT, at TIMESTAMP", name="rows")
            rows = rows.transform(hr.event_time("at", out_of_order="1 minute"))
            lucky = luck(tiers(rows) if with_tiers else rows)
            hr.write("counts", hourly(lucky.where("id < 50")), hr.to_files(tmp_path / "counts"))
            hr.write("raw", lucky, hr.to_files(tmp_path / "raw"))

        return enriched

    land("a", 10)
    first = define(with_tiers=True)
    text = first.explain(spark=spark)
    assert "reads step.tiers; columns id, at, tier, lucky" in text
    assert "answers are stored until their batch is done" in text
    first.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)
    (raw,) = (entry for entry in history.read(tmp_path / "checkpoint" / "raw") if entry.account.sources)
    assert raw.account.steps["tiers"] == StepCounts(in_=1000, accepted=1000)
    assert (raw.account.steps["luck"].accepted, raw.account.steps["luck"].failed) == (990, 10)
    asked, tried = raw.counters["tiers"], raw.counters["luck"]
    assert (asked["keys"], tried["calls"], tried["failures"], tried["breaker_open"]) == (100, 100, 1, 0)
    rows = pl.read_parquet(tmp_path / "raw" / "**" / "*.parquet")
    assert rows.height == 990
    assert rows.filter(pl.col("tier") != pl.col("id") % 3).is_empty()

    land("b", 12)
    define(with_tiers=False).run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(drain=True), spark=spark)
    counts = pl.read_parquet(tmp_path / "counts" / "**" / "*.parquet").sort("window")
    assert counts.select("lucky", "n").rows() == [(True, 490), (True, 490)]
