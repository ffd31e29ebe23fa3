"""The same job twice: count the rows of each key, tell every hundredth, and tell when a key has fallen silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import polars as pl
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import headrace as hr
from benchmarks.discard import Discard
from benchmarks.spark_streams import run_to_end
from benchmarks.wheel.inputs import FILES_PER_BATCH, SCHEMA
from benchmarks.wheel.jobs import DELAY

FLOW = "counts"
EMIT_EVERY = 100
"""Of how many rows of a key one is told."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one run is asked to do."""

    rows: str
    """The folder of the files."""
    checkpoint: str
    silence: int
    """Minutes without a row after which a key is silent."""
    results: str | None = None
    """Where results are written; None: they are computed and thrown away."""


class Counting(hr.KeyedProcess):
    """Headrace's form. Spark's has no time to live either: it would cost Spark more than us."""

    seen = hr.value_state("BIGINT", keep_forever=True)

    def __init__(self, silence: str) -> None:
        self.silence = silence

    def on_row(self, row: Any, context: Any) -> Iterator[dict[str, Any]]:
        """Count, and put the timer off."""
        n = (self.seen.get() or 0) + 1
        self.seen.set(n)
        context.set_timer("silent", after=self.silence)
        if n % EMIT_EVERY == 0:
            yield {"k": context.key, "n": n, "silent_at": None}

    def on_timer(self, timer: Any, context: Any) -> Iterator[dict[str, Any]]:
        """Tell that the key has been silent."""
        yield {"k": context.key, "n": self.seen.get(), "silent_at": timer.time}


class CountingFrames(hr.FrameProcess):
    """The same over the rows of many keys at once."""

    seen = hr.value_state("BIGINT", keep_forever=True)
    silent = hr.timer()

    def __init__(self, silence: int) -> None:
        self.silence = timedelta(minutes=silence)

    def on_rows(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
        """Count, and put the timers off."""
        n = pl.col("seen").fill_null(0) + pl.int_range(1, pl.len() + 1).over("k")
        counted = frame.with_columns(n=n, silent=pl.col("ts") + self.silence, silent_at=None)
        return counted.with_columns(seen="n", emit=pl.col("n") % EMIT_EVERY == 0)

    def on_timers(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
        """Tell which keys have been silent."""
        return frame.with_columns(n="seen", silent_at="fired_at")


@hr.pipeline
def counting(spark: SparkSession, order: Order, author: hr.KeyedProcess | hr.FrameProcess) -> None:
    """Headrace's job."""
    rows = hr.read_files(
        spark, order.rows, format="parquet", schema=SCHEMA, name="events", files_per_batch=FILES_PER_BATCH
    ).transform(hr.event_time("ts", out_of_order=DELAY))
    step = hr.process("counting", author, key="k", output="k BIGINT, n BIGINT, silent_at TIMESTAMP").late(hr.drop())
    hr.write(FLOW, rows.transform(step).select("k", "n", "silent_at"), Discard(order.results))


def run_headrace(spark: SparkSession, order: Order) -> None:
    """Headrace, row by row."""
    _run(spark, order, Counting(f"{order.silence} minutes"))


def run_frames(spark: SparkSession, order: Order) -> None:
    """Headrace, a frame a turn."""
    _run(spark, order, CountingFrames(order.silence))


def _run(spark: SparkSession, order: Order, author: hr.KeyedProcess | hr.FrameProcess) -> None:
    counting.run(checkpoint=order.checkpoint, mode=hr.available_now(), spark=spark, order=order, author=author)


class CountingOnSpark(StatefulProcessor):
    """Spark's form: a callback for all rows of a key in a batch, so state and timer are touched once for all of them.

    The state holds when the timer is due, because only who knows that can take it back.
    """

    def __init__(self, silence: int) -> None:
        self._silence = silence * 60_000

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._handle = handle
        self._seen = handle.getValueState("seen", "n BIGINT, due BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Count, and put the timer off."""
        watermark = timerValues.getCurrentWatermarkInMs()
        before, set_for = self._seen.get() or (0, 0)
        n, last = before, 0
        for row in rows:
            at = row.at
            if at < watermark:
                continue
            n += 1
            last = max(last, at)
            if n % EMIT_EVERY == 0:
                yield Row(k=key[0], n=n, silent_at=None)
        due = max(set_for, last + self._silence)
        if n == before:
            return
        if due != set_for:
            if set_for:
                self._handle.deleteTimer(set_for)
            self._handle.registerTimer(due)
        self._seen.update((n, due))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Tell that the key has been silent."""
        n, _ = self._seen.get()
        self._seen.update((n, 0))
        yield Row(k=key[0], n=n, silent_at=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        """Nothing to release."""


def run_spark(spark: SparkSession, order: Order) -> None:
    """Spark's ``transformWithState`` in Python; times come as numbers, cheaper for Python than timestamps."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH)
    rows = reader.parquet(order.rows).withWatermark("ts", DELAY).select("k", F.unix_millis("ts").alias("at"))
    results = rows.groupBy("k").transformWithState(
        CountingOnSpark(order.silence), "k BIGINT, n BIGINT, silent_at BIGINT", "Append", "EventTime"
    )
    results = results.withColumn("silent_at", F.timestamp_millis("silent_at"))
    run_to_end(results, order.checkpoint, order.results)


FRAMES = "headrace, frames"
RUNS: Mapping[str, Callable[[SparkSession, Order], None]] = {
    "headrace": run_headrace,
    FRAMES: run_frames,
    "spark": run_spark,
}
