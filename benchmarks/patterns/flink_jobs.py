"""The same patterns as Flink SQL, from the same topic."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.flink.run import SqlJob
from benchmarks.patterns.jobs import COLUMNS
from benchmarks.patterns.kinds import KINDS, condition
from benchmarks.windows.kinds import DELAY


def sql_job(kind: str, servers: str, topic: str, results: Path | None) -> SqlJob:
    """A job over all that the topic holds now; without ``results`` matches are found and thrown away."""
    delay, unit = DELAY.removesuffix("s").split()
    # As for windows: only what the query needs is declared, and the time as the number, which Flink parses faster.
    source = f"""
        CREATE TABLE bids (
            bidder BIGINT, price BIGINT, `at` BIGINT,
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
        CREATE TABLE found (
            bidder BIGINT, began BIGINT, ended BIGINT, n BIGINT, total BIGINT
        ) WITH ({options})"""
    defined = ", ".join(
        f"{step} AS {condition(f'{step}.price', prices)}"
        for step, prices in zip("ABC", KINDS[kind].values(), strict=True)
    )
    insert = f"""
        INSERT INTO found
        SELECT bidder, began, ended, n, total
        FROM bids MATCH_RECOGNIZE (
            PARTITION BY bidder
            ORDER BY ts
            MEASURES A.`at` AS began, C.`at` AS ended, COUNT(B.price) AS n, SUM(B.price) AS total
            ONE ROW PER MATCH
            AFTER MATCH SKIP PAST LAST ROW
            PATTERN (A B{{1,3}} C) WITHIN INTERVAL '1' MINUTE
            DEFINE {defined}
        )"""
    return SqlJob((source, sink), insert)


def read_results(folder: Path) -> pl.DataFrame:
    """What a job wrote."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return pl.concat(pl.read_csv(file, has_header=False, schema=dict.fromkeys(COLUMNS, pl.Int64)) for file in files)
