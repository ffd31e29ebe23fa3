"""The same joins as Flink SQL, from the same topics."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.flink.run import SqlJob
from benchmarks.flink.tables import bounded_topic, results_table, topic_table, watermark, written
from benchmarks.joins.jobs import COLUMNS
from benchmarks.joins.kinds import CHEAP, DEAR, INTERVAL, SECONDS
from benchmarks.joins.rows import tiers_of
from benchmarks.windows.kinds import DELAY


def sql_job(kind: str, servers: str, topic: str, results: Path | None) -> SqlJob:
    """A job over all that the topics hold now; without ``results`` what is joined is thrown away."""
    bids = topic_table("bids", "bidder BIGINT, price BIGINT", servers=servers, topic=topic, delay=DELAY)
    columns = ", ".join(f"{name} BIGINT" for name in ("bidder", "bid_at", "price", "found_at", "found"))
    sink = results_table("joined", columns, results)
    if kind == INTERVAL:
        # One table in two views: Flink reads the topic once.
        views = (f"CREATE VIEW {name} AS SELECT * FROM bids WHERE {which}" for name, which in _VIEWS.items())
        return SqlJob((bids, *views, sink), _INTERVAL, counted="bids")
    # Flink's form of a table of versions in Kafka: the newest message of a key counts from its time on.
    tiers = f"""
        CREATE TABLE tiers (
            bidder BIGINT, tier BIGINT, `at` BIGINT,
            ts AS TO_TIMESTAMP_LTZ(`at`, 3), {watermark(DELAY)}, PRIMARY KEY (bidder) NOT ENFORCED
        ) WITH (
            'connector' = 'upsert-kafka', {bounded_topic(servers, tiers_of(topic))},
            'key.format' = 'json', 'value.format' = 'json'
        )"""
    return SqlJob((bids, tiers, sink), _TEMPORAL, counted="bids")


_VIEWS = {"cheap": CHEAP, "dear": DEAR}
_INTERVAL = f"""
    INSERT INTO joined
    SELECT cheap.bidder, cheap.`at`, cheap.price, dear.`at`, dear.price
    FROM cheap JOIN dear ON cheap.bidder = dear.bidder
        AND dear.ts BETWEEN cheap.ts AND cheap.ts + INTERVAL '{SECONDS}' SECOND"""
_TEMPORAL = """
    INSERT INTO joined
    SELECT bids.bidder, bids.`at`, bids.price, tiers.`at`, tiers.tier
    FROM bids JOIN tiers FOR SYSTEM_TIME AS OF bids.ts ON bids.bidder = tiers.bidder"""


def read_results(folder: Path) -> pl.DataFrame:
    """What a job wrote."""
    return written(folder, dict.fromkeys(COLUMNS, pl.Int64))
