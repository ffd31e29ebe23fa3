"""The same windows as Flink SQL, from the same topic."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.flink.run import SqlJob
from benchmarks.windows.kinds import DELAY, KINDS

COLUMNS = ("key", "start", "end", "n", "total", "top")


def sql_job(kind: str, servers: str, topic: str, results: Path | None) -> SqlJob:
    """A job over all that the topic holds now; without ``results`` they are computed and thrown away."""
    key = KINDS[kind].key
    delay, unit = DELAY.removesuffix("s").split()
    # Only what the query needs is declared, because the connector would decode every declared field. Of the two forms
    # of the time in a row, Flink parses the number faster.
    source = f"""
        CREATE TABLE bids (
            {key} BIGINT, price BIGINT, `at` BIGINT,
            ts AS TO_TIMESTAMP_LTZ(`at`, 3), WATERMARK FOR ts AS ts - INTERVAL '{delay}' {unit}
        ) WITH (
            'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'json'
        )"""
    if results is None:
        options = "'connector' = 'blackhole'"
    else:
        options = f"'connector' = 'filesystem', 'path' = '{results.as_uri()}', 'format' = 'csv'"
    sink = f"""
        CREATE TABLE windows (
            k BIGINT, starts TIMESTAMP(3), ends TIMESTAMP(3), n BIGINT, total BIGINT, top BIGINT
        ) WITH ({options})"""
    insert = f"""
        INSERT INTO windows
        SELECT {key}, window_start, window_end, COUNT(*), SUM(price), MAX(price)
        FROM {KINDS[kind].flink}
        GROUP BY {key}, window_start, window_end"""
    return SqlJob((source, sink), insert)


def read_results(folder: Path) -> pl.DataFrame:
    """What a job wrote, with times in milliseconds."""
    schema = {name: pl.String if name in ("start", "end") else pl.Int64 for name in COLUMNS}
    files = [file for file in folder.rglob("*") if file.is_file()]
    written = pl.concat(pl.read_csv(file, has_header=False, schema=schema) for file in files)
    return written.with_columns(pl.col("start", "end").str.to_datetime(time_unit="ms").cast(pl.Int64))
