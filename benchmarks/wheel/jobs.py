"""The same job in four forms: count and sum by key and hour, emitted when the hour closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import headrace as hr
from benchmarks.spark_streams import SPARKS_STATE, STATE_STORE
from benchmarks.wheel.inputs import FILES_PER_BATCH, OUT_OF_ORDER, SCHEMA
from headrace.runtime.pipeline import Pipeline

IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
DELAY = f"{OUT_OF_ORDER // 1_000_000} seconds"
FLOW = "counts"
Take = Callable[[DataFrame], None]
"""What is done with the rows of a batch."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one run is asked to do."""

    folder: Path
    checkpoint: Path
    take: Take | None
    """Called with each batch's rows; None: the rows are computed and thrown away."""
    share: int = 1
    """Of how many keys one is taken: a slow system gets fewer keys, each with all its rows."""


@dataclass(frozen=True, slots=True)
class Discard:
    """The sink of the measured runs: computes the rows and throws them away, as Spark's own no-op sink does."""

    take: Take | None
    done: Callable[[], None]

    @property
    def guarantee(self) -> str:
        """Nothing is kept, so nothing is kept twice."""
        return "exactly_once"

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        """Run the frame once."""
        if self.take is None:
            frame.write.format("noop").mode("overwrite").save()
        else:
            self.take(frame.select("k", F.col("window.end").alias("end"), "n", "total"))
        self.done()
        return hr.Written(0, 0)


@hr.pipeline
def counting(spark: SparkSession, folder: str, sink: hr.Sink) -> None:
    """Headrace's form of the job."""
    hourly = hr.tumbling("hourly", size="1 hour", key="k").agg(n="count(*)", total="sum(v)").late(hr.drop())
    hr.write(FLOW, _events(spark, folder).transform(hourly), sink)


@hr.pipeline
def chained(spark: SparkSession, folder: str, sink: hr.Sink) -> None:
    """The same hours from the minutes that a first step counts."""
    minutes = hr.tumbling("minutes", size="1 minute", key="k").agg(n="count(*)", total="sum(v)").late(hr.drop())
    hourly = hr.tumbling("hourly", size="1 hour", key="k").agg(n="sum(n)", total="sum(total)").late(hr.drop())
    hr.write(FLOW, _events(spark, folder).transform(minutes).transform(hourly), sink)


def _events(spark: SparkSession, folder: str) -> DataFrame:
    rows = hr.read_files(spark, folder, format="parquet", schema=SCHEMA, name="events", files_per_batch=FILES_PER_BATCH)
    return rows.transform(hr.event_time("ts", out_of_order=DELAY))


def run_headrace(spark: SparkSession, order: Order, done: Callable[[], None]) -> None:
    """Headrace."""
    _run_pipeline(counting, spark, order, done)


def run_chain(spark: SparkSession, order: Order, done: Callable[[], None]) -> None:
    """Headrace, with two steps for the same result."""
    _run_pipeline(chained, spark, order, done)


def _run_pipeline(pipeline: Pipeline, spark: SparkSession, order: Order, done: Callable[[], None]) -> None:
    sink = Discard(order.take, done)
    pipeline.run(checkpoint=order.checkpoint, mode=hr.available_now(), spark=spark, folder=str(order.folder), sink=sink)


class CountAndSum(StatefulProcessor):
    """Spark's form for Python: a callback for each key, state and timers by socket."""

    def init(self, handle: Any) -> None:
        """Declare the state: the open windows of a key."""
        self._handle = handle
        self._windows = handle.getMapState("windows", "end BIGINT", "n BIGINT, total DOUBLE")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Add a key's rows to its open windows."""
        watermark = timerValues.getCurrentWatermarkInMs()
        found: dict[int, tuple[int, float]] = {}
        for row in rows:
            n, total = found.get(row.end, (0, 0.0))
            found[row.end] = (n + 1, total + row.v)
        for end, (n, total) in found.items():
            if end <= watermark:
                continue
            held = self._windows.getValue((end,))
            if held is None:
                self._handle.registerTimer(end)
                self._windows.updateValue((end,), (n, total))
            else:
                self._windows.updateValue((end,), (n + held[0], total + held[1]))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Emit a window that has closed."""
        end = expiredTimerInfo.getExpiryTimeInMs()
        n, total = self._windows.getValue((end,))
        self._windows.removeKey((end,))
        yield Row(k=key[0], end=end, n=n, total=total)

    def close(self) -> None:
        """Nothing to release."""


def run_python_state(spark: SparkSession, order: Order, _done: Callable[[], None]) -> None:
    """Spark's ``transformWithState`` in Python; ends of windows come as numbers, cheaper for Python than timestamps."""
    end = F.unix_millis(F.window("ts", "1 hour").getField("end"))
    rows = _read(spark, order).select("k", "v", end.alias("end"))
    counts = rows.groupBy("k").transformWithState(
        CountAndSum(), "k BIGINT, end BIGINT, n BIGINT, total DOUBLE", "Append", "EventTime"
    )
    _run(counts.withColumn("end", F.timestamp_millis("end")), order)


def run_native(spark: SparkSession, order: Order, _done: Callable[[], None]) -> None:
    """Spark's own aggregation, compiled on the JVM."""
    counts = (
        _read(spark, order)
        .groupBy(F.window("ts", "1 hour"), "k")
        .agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    )
    _run(counts.select("k", F.col("window.end").alias("end"), "n", "total"), order)


def _read(spark: SparkSession, order: Order) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH)
    rows = reader.parquet(str(order.folder)).withWatermark("ts", DELAY)
    return rows if order.share == 1 else rows.where(F.col("k") % order.share == 0)


def _run(counts: DataFrame, order: Order) -> None:
    writer = counts.writeStream.outputMode("append").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(order.checkpoint))
    take = order.take
    query: StreamingQuery
    if take is None:
        query = writer.format("noop").start()
    else:
        query = writer.foreachBatch(lambda frame, _: take(frame)).start()
    query.awaitTermination()


RUNS: Mapping[str, Callable[[SparkSession, Order, Callable[[], None]], None]] = {
    "headrace": run_headrace,
    "chain": run_chain,
    "python_state": run_python_state,
    "native": run_native,
}
SETTINGS: Mapping[str, dict[str, str]] = {
    "headrace": {},
    "chain": {},
    "python_state": SPARKS_STATE,
    # Almost four times as fast as RocksDB at a million keys; see docs/design/2026-11-15-wheel-benchmark.md.
    "native": {f"{STATE_STORE}.providerClass": IN_MEMORY, f"{STATE_STORE}.checkpointFormatVersion": "1"},
}
OURS = frozenset({"headrace", "chain"})
"""The systems whose history tells what a batch took; of the others Spark tells it."""
