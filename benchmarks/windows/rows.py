"""The rows that every system is given: bids, as JSON in a topic of four partitions and as Parquet files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.spark_runs import Source
from benchmarks.wheel.cases import say

PARTITIONS = 4
FILES_PER_BATCH = 4
CHUNK = 100_000
AUCTIONS, BIDDERS = 10_000, 50_000
FIRST_TIME = 1_767_225_600_000
"""2026-01-01 in milliseconds."""
ROWS_PER_MILLISECOND = 10
GRAIN = 3
"""Times are multiples of three milliseconds, so no two are exactly ten seconds apart: Flink would make one session of
such rows, Spark and Headrace two."""
OUT_OF_ORDER = 2_000
VERY_LATE = 3_600_000
CLOSING = 600_000
"""How far behind all others the time of the last row of each partition is: it closes their windows."""
PADDING = "x" * 34


class Message(NamedTuple):
    """A row on its way to a topic."""

    value: bytes
    partition: int
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """So many bids, the same for every system, run and machine.

    Ten rows share a millisecond of event time and are up to two seconds out of order; a quarter of all rows has the
    busiest auction, bidders are drawn evenly.
    """

    name: str
    number: int
    late_from: int | None = None
    """From this row on, one in a thousand is an hour late; by then every system knows that it is."""

    def __post_init__(self) -> None:
        assert self.number % CHUNK == 0

    @property
    def closing_time(self) -> int:
        """The time of the last row of each partition, in milliseconds."""
        return (FIRST_TIME + self.number // ROWS_PER_MILLISECOND + CLOSING) // GRAIN * GRAIN

    def frames(self) -> Iterator[pl.DataFrame]:
        """Chunk by chunk; row ``i`` belongs to partition ``i mod 4``."""
        for first in range(0, self.number, CHUNK):
            yield _with_texts(self._chunk(first))
        closing = {"auction": [0] * PARTITIONS, "bidder": [0] * PARTITIONS, "price": [1] * PARTITIONS}
        yield _with_texts(pl.DataFrame(closing).with_columns(at=pl.lit(self.closing_time)))

    def _chunk(self, first: int) -> pl.DataFrame:
        random = np.random.default_rng([7, first])
        at = FIRST_TIME + np.arange(first, first + CHUNK) // ROWS_PER_MILLISECOND
        at -= random.integers(0, OUT_OF_ORDER, CHUNK)
        if self.late_from is not None and first >= self.late_from:
            at[::1001] -= VERY_LATE
        return pl.DataFrame(
            {
                "auction": random.zipf(1.3, CHUNK) % AUCTIONS,
                "bidder": random.integers(0, BIDDERS, CHUNK),
                "price": random.integers(1, 1_000_000, CHUNK),
                "at": at // GRAIN * GRAIN,
            }
        )

    def to_topic(self, servers: str) -> str:
        """Fill a topic of this name with JSON of about 200 bytes a row."""

        def messages(frame: pl.DataFrame) -> Iterator[Message]:
            for row, text in enumerate(json_rows(frame)):
                yield Message(text, row % PARTITIONS)

        fill_topic(servers, self.name, map(messages, self.frames()))
        return self.name

    def in_kafka(self, servers: str, *, batch: int, warm_up: int = 0) -> Source:
        """Fill the topic, to be read ``batch`` rows at a time."""
        say(f"filling a topic with {self.number:,} rows")
        return Source(self.to_topic(servers), servers, self.number, batch, warm_up)

    def to_files(self, folder: Path, batch: int) -> Path:
        """Write Parquet files, four for each ``batch`` rows, dated so that all systems take them in the same order."""
        place = folder / self.name
        place.mkdir(parents=True)
        everything = pl.concat(self.frames())
        part = batch // FILES_PER_BATCH
        oldest = int(time.time()) - self.number // part - 60
        for number, rows in enumerate(everything.head(self.number).iter_slices(part)):
            file = place / f"{number:05d}.parquet"
            rows.write_parquet(file, compression="snappy")
            os.utime(file, (oldest + number, oldest + number))
        return place


def json_rows(rows: pl.DataFrame) -> list[bytes]:
    """Rows as JSON; the time comes in two forms, and each system reads the one that it parses faster."""
    text = rows.with_columns(pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")).write_ndjson()
    return text.encode().splitlines()


def fill_topic(servers: str, topic: str, chunks: Iterable[Iterable[Message]]) -> None:
    """Make a topic and send it messages, waiting behind each chunk until it is there."""
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        created.result()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "compression.type": "lz4"})
    for chunk in chunks:
        for value, partition, key in chunk:
            producer.produce(topic, value, key=key, partition=partition)
        producer.flush()


def with_time(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with their time as a timestamp beside the number."""
    return rows.with_columns(pl.col("at").cast(pl.Datetime("ms", "UTC")).cast(pl.Datetime("us", "UTC")).alias("ts"))


def _with_texts(rows: pl.DataFrame) -> pl.DataFrame:
    texts = rows.with_columns(
        pl.format("channel-{}", pl.col("bidder") % 1000).alias("channel"),
        pl.format("https://auctions.test/item/{}?from={}", "auction", pl.lit(PADDING)).alias("url"),
    )
    return with_time(texts)
