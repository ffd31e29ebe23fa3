"""A lookup beside a plain ``foreach`` loop on Spark: a service that takes 10 ms, every row another key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import Row, SparkSession

import headrace as hr
from benchmarks.discard import Discard
from benchmarks.wheel.cases import Goal
from headrace.observe import history
from headrace.operators.lookup.lookup import lookup

GOAL = Goal("lookup_vs_loop", 50.0)
CALL_SECONDS = 0.01
SCHEMA = "id BIGINT"
FLOW = "enriched"
TASKS = 2
WARM_ROWS = 200


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows a second of both."""

    lookup: float
    loop: float

    @property
    def ratio(self) -> float:
        """Our rate as a multiple of the loop's."""
        return self.lookup / self.loop


def measure(spark: SparkSession, folder: Path, *, rows: int = 40_000, loop_rows: int = 1_000) -> Measured:
    """Both, one after the other, each after a small batch to warm up.

    The loop gets fewer rows: at 10 ms each its rate does not depend on how many there are. No key comes twice and
    nothing is remembered, so all that counts is how many calls are on their way at the same time.
    """
    return Measured(_lookup_rate(spark, folder / "lookup", rows), _loop_rate(spark, folder / "loop", loop_rows))


def _lookup_rate(spark: SparkSession, folder: Path, rows: int) -> float:
    async def service(key: int) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return {"name": str(key)}

    step = lookup("names", service, on="id", output="name STRING", on_failure="stop")

    @hr.pipeline
    def enriched(spark: SparkSession) -> None:
        given = hr.read_files(spark, str(folder / "rows"), format="parquet", schema=SCHEMA, name="events")
        hr.write(FLOW, given.transform(step), Discard(None))

    checkpoint = folder / "checkpoint"
    for size in (WARM_ROWS, rows):
        _drop(folder / "rows", size)
        enriched.run(checkpoint=str(checkpoint), mode=hr.available_now(), spark=spark)
    last = history.read(checkpoint / FLOW)[-1]
    if last.counters["names"]["calls"] != rows:
        raise SystemExit(f"{rows} keys were not asked for once each, so no rate means anything: {last.counters}")
    return rows / last.seconds.batch


def _loop_rate(spark: SparkSession, folder: Path, rows: int) -> float:
    seconds = CALL_SECONDS

    def ask(_: Row) -> None:
        time.sleep(seconds)

    _drop(folder / "rows", WARM_ROWS)
    _run_loop(spark, folder, ask)
    _drop(folder / "rows", rows)
    return rows / _run_loop(spark, folder, ask)


def _run_loop(spark: SparkSession, folder: Path, ask: Callable[[Row], None]) -> float:
    """Seconds of the last batch."""
    writer = spark.readStream.schema(SCHEMA).parquet(str(folder / "rows")).writeStream.foreach(ask)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    return float(batches[-1]["durationMs"]["triggerExecution"]) / 1000


def _drop(folder: Path, rows: int) -> None:
    """A batch of new keys in as many files as there are tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    first = sum(pl.read_parquet(file).height for file in folder.glob("*.parquet"))
    keys = pl.DataFrame({"id": range(first, first + rows)}, schema={"id": pl.Int64})
    for number in range(TASKS):
        keys.gather_every(TASKS, number).write_parquet(folder / f"{first}-{number}.parquet")
