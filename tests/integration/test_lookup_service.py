"""A flow that asks a service over HTTP while it is slow, down, flapping or mad: no row is lost, and history tells."""

from __future__ import annotations

import asyncio
import json
from math import ceil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.observe import history
from tests.bad_service import bad_service

pytestmark = [pytest.mark.spark, pytest.mark.full]

ROWS, KEYS, IN_FLIGHT, TIMEOUT, RETRIES = 600, 60, 20, 5, 1


async def well(path: str) -> tuple[int, bytes]:
    return 200, json.dumps({"tier": int(path.rsplit("/", 1)[1]) % 3}).encode()


async def slow(path: str) -> tuple[int, bytes]:
    await asyncio.sleep(0.3)
    return await well(path)


async def hanging(path: str) -> tuple[int, bytes]:
    await asyncio.sleep(60)
    return await well(path)


async def nonsense(path: str) -> tuple[int, bytes]:
    """No answer for odd keys."""
    number = int(path.rsplit("/", 1)[1])
    return (200, (b"<html>", b'{"tier": "gold"}')[number // 2 % 2]) if number % 2 else await well(path)


def flapping() -> Any:
    """Every second key is told at first that nobody is there."""
    asked: set[str] = set()

    async def answer(path: str) -> tuple[int, bytes]:
        first = path not in asked
        asked.add(path)
        return (503, b"") if first and int(path.rsplit("/", 1)[1]) % 2 else await well(path)

    return answer


def test_whatever_the_service_does_rows_are_kept_batches_end_in_time_and_the_breaker_is_in_history(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    landing.mkdir()
    with bad_service() as service:
        tiers = hr.lookup(
            "tiers",
            hr.http_lookup(service.url + "/users/{id}"),
            on="id",
            output="tier INT",
            on_failure="dead_letter",
            in_flight=IN_FLIGHT,
            timeout=f"{TIMEOUT} seconds",
            retries=RETRIES,
            breaker=hr.breaker(after=IN_FLIGHT),
        )

        @hr.pipeline
        def enriched(spark: SparkSession) -> None:
            rows = hr.read_files(spark, landing, format="json", schema="id BIGINT, n BIGINT", name="rows")
            hr.write("tiered", tiers(rows), hr.to_files(tmp_path / "out"))

        def after(name: str, answer: Any) -> dict[str, Any]:
            """What history says of a batch that met the service so."""
            service.answer = answer
            lines = [json.dumps({"id": n % KEYS, "n": n}) for n in range(ROWS)]
            (landing / f".{name}").write_text("\n".join(lines))
            (landing / f".{name}").rename(landing / f"{name}.json")
            enriched.run(checkpoint=checkpoint, mode=hr.available_now(), spark=spark)
            entry = [entry for entry in history.read(checkpoint / "tiered") if entry.account.sources][-1]
            steps = entry.account.steps["tiers"]
            assert steps.in_ == ROWS == steps.accepted + steps.failed
            longest = TIMEOUT * (RETRIES + 1) * ceil(KEYS / IN_FLIGHT) + 2
            assert entry.seconds.batch <= longest, f"{name}: {entry.seconds}"
            return {"failed": steps.failed, **entry.counters["tiers"]}

        # The first batch of a process starts its Python workers, which is nobody's waiting.
        first = after("well", well)
        assert (first["failed"], first["calls"], first["breaker_open"]) == (0, KEYS, 0)
        assert after("slow", slow)["failed"] == 0
        unsteady = after("flapping", flapping())
        assert (unsteady["failed"], unsteady["retries"], unsteady["breaker_open"]) == (0, KEYS / 2, 0)
        mad = after("nonsense", nonsense)
        assert (mad["failed"], mad["breaker_open"]) == (ROWS / 2, 0)
        hung = after("hanging", hanging)
        assert hung["failed"] == ROWS
        assert hung["breaker_open"] >= 1
        assert hung["timeouts"] >= IN_FLIGHT
        assert after("well again", well)["failed"] == 0
    # Nobody listens any more.
    down = after("down", hanging)
    assert down["failed"] == ROWS
    assert down["breaker_open"] >= 1
    letters = pl.read_parquet(checkpoint / "tiered" / "dead_letters" / "**" / "*.parquet", glob=True)
    assert letters.height == 2.5 * ROWS
    # A key whose call failed before the breaker opened, and was asked again at once, failed by itself.
    reasons = set(letters["reason"]) - {"LOOKUP_TIMEOUT", "LOOKUP_FAILED"}
    assert reasons == {"ANSWER_NOT_JSON", "ANSWER_WRONG_TYPE", "BREAKER_OPEN"}
    out = pl.read_parquet(tmp_path / "out" / "**" / "*.parquet")
    assert out.height == 4.5 * ROWS
    assert out.filter(pl.col("tier") != pl.col("id") % 3).is_empty()
