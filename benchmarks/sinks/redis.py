"""Redis: our scripts beside a loop that fills redis-py's pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import polars as pl
from redis import Redis

import headrace as hr
from benchmarks.sinks.cases import Case, Digest, Way
from benchmarks.sinks.ours import delivery
from benchmarks.sinks.rows import Rows
from headrace.connectors.servers import running

TOGETHER = 1_000


@contextmanager
def redis_case(rows: Rows, root: Path) -> Iterator[Case]:
    """A hash for each id; half of the ids are there already."""
    with running("redis") as server:
        ours, plain = f"redis://{server.address}/0", f"redis://{server.address}/1"
        write_ours = delivery(hr.to_redis(ours, key="row:{id}"), rows, root / "redis")
        yield Case(
            "redis_vs_pipeline",
            Way("to_redis", write_ours, lambda: _digest(ours)),
            (Way("redis-py pipeline", _pipelining(rows, plain), lambda: _digest(plain)),),
        )


def _pipelining(rows: Rows, url: str) -> Callable[[int], None]:
    """One connection in one process that has the rows already."""
    batch_of = rows.in_memory()
    client = Redis.from_url(url)

    def write(batch: int) -> None:
        texts = batch_of(batch).with_columns(pl.col("at").dt.to_string("%Y-%m-%dT%H:%M:%SZ"))
        for part in texts.iter_slices(TOGETHER):
            pipeline = client.pipeline(transaction=False)
            for row in part.iter_rows(named=True):
                # Text keys are among those that it takes, but a Mapping is invariant in its keys.
                pipeline.hset(f"row:{row['id']}", mapping=row)  # type: ignore[arg-type]
            pipeline.execute()

    return write


def _digest(url: str) -> Digest:
    client = Redis.from_url(url)
    number = total = 0
    keys = client.scan_iter("row:*", count=TOGETHER)
    while part := list(islice(keys, TOGETHER)):
        pipeline = client.pipeline(transaction=False)
        for key in part:
            pipeline.hgetall(key)
        for key, fields in zip(part, pipeline.execute(), strict=True):
            hashed = blake2b(repr((key, sorted(fields.items()))).encode(), digest_size=8)
            total += int.from_bytes(hashed.digest())
            number += 1
    return number, str(total)
