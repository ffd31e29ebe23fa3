"""The same windows as Flink SQL, from the same topic."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.flink.run import SqlJob
from benchmarks.flink.tables import results_table, topic_table, written
from benchmarks.windows.kinds import DELAY, KINDS
from benchmarks.windows.spark_jobs import COLUMNS


def sql_job(kind: str, servers: str, topic: str, results: Path | None) -> SqlJob:
    """A job over all that the topic holds now; without ``results`` they are computed and thrown away."""
    key = KINDS[kind].key
    source = topic_table("bids", f"{key} BIGINT, price BIGINT", servers=servers, topic=topic, delay=DELAY)
    columns = "k BIGINT, starts TIMESTAMP(3), ends TIMESTAMP(3), n BIGINT, total BIGINT, top BIGINT"
    sink = results_table("windows", columns, results)
    insert = f"""
        INSERT INTO windows
        SELECT {key}, window_start, window_end, COUNT(*), SUM(price), MAX(price)
        FROM {KINDS[kind].flink}
        GROUP BY {key}, window_start, window_end"""
    return SqlJob((source, sink), insert)


def read_results(folder: Path) -> pl.DataFrame:
    """What a job wrote, with times in milliseconds."""
    schema = {name: pl.String if name in ("start", "end") else pl.Int64 for name in COLUMNS}
    return written(folder, schema).with_columns(pl.col("start", "end").str.to_datetime(time_unit="ms").cast(pl.Int64))
