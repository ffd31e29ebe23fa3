"""Flink SQL that several benchmarks need: a topic as a table, a table for results, and what was written to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl


def topic_table(name: str, columns: str, *, servers: str, topic: str, delay: str) -> str:
    """A table of all that a topic holds now; ``ts``, its time, trails by ``delay``, as in ``4 seconds``.

    Only what a query needs should be among the columns, because the connector decodes every declared field. Of the two
    forms of the time in a row, Flink parses the number faster.
    """
    return f"""
        CREATE TABLE {name} (
            {columns}, `at` BIGINT,
            ts AS TO_TIMESTAMP_LTZ(`at`, 3), {watermark(delay)}
        ) WITH (
            'connector' = 'kafka', {bounded_topic(servers, topic)},
            'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
        )"""


def watermark(delay: str) -> str:
    """The clause for a watermark that trails the column ``ts``.

    >>> watermark("4 seconds")
    "WATERMARK FOR ts AS ts - INTERVAL '4' second"
    """
    number, unit = delay.removesuffix("s").split()
    return f"WATERMARK FOR ts AS ts - INTERVAL '{number}' {unit}"


def bounded_topic(servers: str, topic: str) -> str:
    """The options by which a job ends when it has read what the topic holds at its start."""
    return f"'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'scan.bounded.mode' = 'latest-offset'"


def results_table(name: str, columns: str, results: Path | None) -> str:
    """A table that writes to a folder, or, without one, throws away what is computed."""
    if results is None:
        options = "'connector' = 'blackhole'"
    else:
        options = f"'connector' = 'filesystem', 'path' = '{results.as_uri()}', 'format' = 'csv'"
    return f"CREATE TABLE {name} ({columns}) WITH ({options})"


def written(folder: Path, schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """What a job wrote."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return pl.concat(pl.read_csv(file, has_header=False, schema=dict(schema)) for file in files)
