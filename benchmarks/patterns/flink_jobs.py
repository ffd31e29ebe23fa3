"""The same patterns as Flink SQL, from the same topic."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.flink.run import SqlJob
from benchmarks.flink.tables import results_table, topic_table, written
from benchmarks.patterns.jobs import COLUMNS
from benchmarks.patterns.kinds import KINDS, condition
from benchmarks.windows.kinds import DELAY


def sql_job(kind: str, servers: str, topic: str, results: Path | None) -> SqlJob:
    """A job over all that the topic holds now; without ``results`` matches are found and thrown away."""
    source = topic_table("bids", "bidder BIGINT, price BIGINT", servers=servers, topic=topic, delay=DELAY)
    sink = results_table("found", "bidder BIGINT, began BIGINT, ended BIGINT, n BIGINT, total BIGINT", results)
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
    return written(folder, dict.fromkeys(COLUMNS, pl.Int64))
