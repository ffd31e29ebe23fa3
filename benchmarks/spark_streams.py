"""Spark's own streams, as its forms of the jobs need them: a topic as rows, and a query that runs to the end."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.spark_runs import Order

STATE_STORE = "spark.sql.streaming.stateStore"
SPARKS_STATE = {
    f"{STATE_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STATE_STORE}.checkpointFormatVersion": "2",
}
"""Where Spark's own streaming queries keep their state: the better of its two stores, writing changes only."""


def topic_rows(spark: SparkSession, order: Order, columns: str) -> DataFrame:
    """The declared columns of a topic's rows, and ``ts``, their time."""
    assert order.servers is not None
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", order.servers)
    reader = reader.option("subscribe", order.rows).option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", order.batch)
    # Of the two forms of the time in a row, Spark parses the number faster.
    parsed = F.from_json(F.col("value").cast("string"), f"{columns}, at BIGINT")
    return reader.load().select(parsed.alias("row")).select("row.*", F.timestamp_millis("row.at").alias("ts"))


def run_to_end(frame: DataFrame, checkpoint: str, results: str | None) -> None:
    """Compute what there is and throw it away, or add it to the results if somebody wants to compare them."""
    writer = frame.writeStream.outputMode("append").trigger(availableNow=True).option("checkpointLocation", checkpoint)
    if results is None:
        query = writer.format("noop").start()
    else:

        def keep(rows: DataFrame, _: int) -> None:
            rows.write.mode("append").parquet(results)

        query = writer.foreachBatch(keep).start()
    query.awaitTermination()
