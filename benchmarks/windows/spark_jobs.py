"""The jobs that run on Spark: Headrace's and Spark's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import headrace as hr
from benchmarks.windows.kinds import DELAY, KINDS
from benchmarks.windows.rows import FILES_PER_BATCH


@dataclass(frozen=True, slots=True)
class Order:
    """What one run is asked to do."""

    kind: str
    checkpoint: str
    batch: int
    """Rows that a batch takes of the topic."""
    servers: str | None
    """The broker, or None when rows come from files."""
    rows: str
    """The topic, or the folder of the files."""
    results: str | None
    """Where results are written; None: they are computed and thrown away."""

    @property
    def key(self) -> str:
        """The column that windows are kept by."""
        return KINDS[self.kind].key


@dataclass(frozen=True, slots=True)
class Discard:
    """The sink of measured runs: computes the rows and throws them away, as Spark's own no-op sink does."""

    order: Order

    @property
    def guarantee(self) -> str:
        """Nothing is kept, so nothing is kept twice."""
        return "exactly_once"

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        """Run the frame once."""
        if self.order.results is None:
            frame.write.format("noop").mode("overwrite").save()
        else:
            keep(frame, self.order.key, self.order.results)
        return hr.Written(0, 0)


def keep(frame: DataFrame, key: str, results: str) -> None:
    """Add a batch's windows to the results."""
    window = F.col("window")
    bounds = (F.unix_millis(window.getField(side)).alias(side) for side in ("start", "end"))
    windows = frame.select(F.col(key).alias("key"), *bounds, "n", "total", "top")
    windows.write.mode("append").parquet(results)


@hr.pipeline
def windows(spark: SparkSession, order: Order) -> None:
    """Headrace's form."""
    schema = f"{order.key} BIGINT, price BIGINT, ts TIMESTAMP"
    if order.servers is None:
        bids = hr.read_files(
            spark, order.rows, format="parquet", schema=schema, name="bids", files_per_batch=FILES_PER_BATCH
        )
    else:
        bids = hr.read_kafka(spark, order.rows, servers=order.servers, schema=schema, name="bids")
    step = KINDS[order.kind].ours().agg(n="count(*)", total="sum(price)", top="max(price)").late(hr.drop())
    timed = bids.transform(hr.event_time("ts", out_of_order=DELAY))
    hr.write("windows", timed.transform(step), Discard(order))


def run_headrace(spark: SparkSession, order: Order) -> None:
    """Headrace."""
    mode = hr.available_now() if order.servers is None else hr.available_now(max_rows=order.batch)
    windows.run(checkpoint=order.checkpoint, mode=mode, spark=spark, order=order)


def run_spark(spark: SparkSession, order: Order) -> None:
    """Spark's own operators."""
    bids = _files(spark, order) if order.servers is None else _topic(spark, order, order.servers)
    aggregates = F.count("*").alias("n"), F.sum("price").alias("total"), F.max("price").alias("top")
    counted = bids.withWatermark("ts", DELAY).groupBy(order.key, KINDS[order.kind].spark().alias("window"))
    writer = counted.agg(*aggregates).writeStream.outputMode("append").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", order.checkpoint)
    results = order.results
    if results is None:
        query = writer.format("noop").start()
    else:
        query = writer.foreachBatch(lambda frame, _: keep(frame, order.key, results)).start()
    query.awaitTermination()


def _files(spark: SparkSession, order: Order) -> DataFrame:
    schema = f"{order.key} BIGINT, price BIGINT, ts TIMESTAMP"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(order.rows)


def _topic(spark: SparkSession, order: Order, servers: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", order.rows)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", order.batch)
    # Of the two forms of the time in a row, Spark parses the number faster.
    parsed = F.from_json(F.col("value").cast("string"), f"{order.key} BIGINT, price BIGINT, at BIGINT")
    return reader.load().select(parsed.alias("bid")).select("bid.*", F.timestamp_millis("bid.at").alias("ts"))


RUNS: Mapping[str, Callable[[SparkSession, Order], None]] = {"headrace": run_headrace, "spark": run_spark}
