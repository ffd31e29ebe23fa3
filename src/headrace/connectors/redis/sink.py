"""The Redis sink: one script writes a chunk of keys and its mark, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, ClassVar

import polars as pl
import redis

from headrace.connectors.base.sink import (
    ChangelogMode,
    Delivered,
    Guarantee,
    Mark,
    Unreachable,
    WriterBatch,
    already_written,
    check_delivery,
    check_epoch,
    forked,
)
from headrace.connectors.redis.chunks import CLAIM, RedisChanges, StoredChunk, Text, chunk_script, chunked
from headrace.connectors.redis.client import RedisAddress, Value, is_passing, run
from headrace.durations import Duration, positive_microseconds
from headrace.errors import HeadraceError, check_choice
from headrace.rendering import Template, flat_schema, parse_template
from headrace.secrets import Secret, call_text
from headrace.stability import stable


@dataclass(frozen=True, slots=True)
class RedisSink:
    """Keys of a Redis server, one for each row's key."""

    changelog_mode: ClassVar[ChangelogMode] = "upsert"
    address: RedisAddress
    key: Template
    value: Value
    ttl: Duration | None
    writers: int | None
    guarantee: Guarantee

    @property
    def target(self) -> str:
        return f"redis keys {str(self.key)!r}"

    @property
    def place(self) -> str:
        return f"{self.target} at {self.address.shown}"

    @property
    def why(self) -> str:
        if self.guarantee == "at_least_once":
            return "every chunk is answered before the batch ends; a batch that runs again sets the same keys again"
        return (
            "each chunk of 1,000 keys and its mark are written by one script, so a crash loses both or neither; "
            "with appendfsync=everysec a crash of its machine, or of Redis while its disk is slow, can lose the last "
            "seconds of both, and when those held a whole batch the flow stops with [MARK_LOST] (appendfsync=always "
            "rules it out)"
        )

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self.key.columns

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        self.check_columns(columns)
        self.check_target(columns)
        if self.guarantee == "at_least_once":
            return
        for writer in writers:
            arguments = (CLAIM, 1, self._mark(writer), str(epoch))
            self._ask(methodcaller("eval", *arguments), writer=writer, epoch=epoch)

    def check_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        self.key.check(flat_schema(columns))

    def check_target(self, columns: Mapping[str, pl.DataType]) -> None:
        if self._ask(lambda client: client.info("cluster")).get("cluster_enabled"):
            raise HeadraceError(
                "REDIS_CLUSTER",
                f"{self.place} is a Redis Cluster, where no script is atomic over all keys. Use a single server.",
            )

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        """Write the rows chunk by chunk, starting after the last marked chunk."""
        changes = chunked(rows, self.key, self.value, changelog=part.batch.changelog)
        chunks, exactly_once = changes.chunks, self.guarantee == "exactly_once"
        stored = self._stored(part.writer) if exactly_once else StoredChunk()
        done = self._done(stored, len(chunks), part) if exactly_once else 0

        def send(client: redis.Redis) -> None:
            sha = client.script_load(chunk_script(self.value, marked=exactly_once))
            run(client, (self._command(sha, number, changes, part, stored) for number in range(done, len(chunks))))

        self._ask(send, writer=part.writer, epoch=part.batch.epoch)
        sizes = [chunk.changes for chunk in chunks]
        refused = None if changes.refused.is_empty() else changes.refused
        return Delivered(sum(sizes[done:]), changes.superseded, sum(sizes[:done]), refused)

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        return [self._stored(part.writer).mark for part in parts] if self.guarantee == "exactly_once" else ()

    def _stored(self, writer: str) -> StoredChunk:
        fields = ["epoch", "generation", "batch", "chunk", "chunks"]
        *answer, token = self._ask(lambda client: client.hmget(self._mark(writer), [*fields, "token"]))
        epoch, generation, batch, chunk, chunks = (None if text is None else int(text) for text in answer)
        if epoch is None:
            return StoredChunk()
        mark = Mark(epoch, generation, batch, token="" if token is None else token.decode())
        return StoredChunk(mark, chunk or 0, chunks or 0)

    def _done(self, stored: StoredChunk, total: int, part: WriterBatch) -> int:
        if not already_written(part, stored.mark, place=self.place):
            return 0
        if stored.chunks != total:
            raise HeadraceError(
                "BATCH_DIFFERS",
                f"{self.place}: batch {part.batch.batch} had {stored.chunks} chunks and has {total} now. "
                "A step of the pipeline is not repeatable; continue from a new checkpoint.",
            )
        return stored.chunk + 1

    def _command(
        self, sha: str, number: int, changes: RedisChanges, part: WriterBatch, stored: StoredChunk
    ) -> tuple[Text | int, ...]:
        chunk, batch = changes.chunks[number], part.batch
        life = 0 if self.ttl is None else max(1, positive_microseconds(self.ttl, argument="ttl") // 1000)
        mark = (batch.epoch, batch.generation, batch.batch, number, len(changes.chunks), chunk.changes, life)
        keys = (self._mark(part.writer), *chunk.deletes, *chunk.sets)
        return ("EVALSHA", sha, len(keys), *keys, *mark, len(chunk.deletes), batch.token, stored.name, *chunk.values)

    def _mark(self, writer: str) -> str:
        return f"headrace:mark:{writer}:{self.key}"

    def _ask(self, question: Callable[[redis.Redis], Any], *, writer: str = "", epoch: int = 0) -> Any:
        try:
            return question(self.address.client())
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError) as problem:
            text, passing = str(problem), is_passing(problem)
        if passing:
            raise Unreachable(f"{self.place}: {text}")
        if text.startswith("FENCED"):
            check_epoch(epoch, int(text.split()[1]), place=self.place, writer=writer)
        if text.startswith("FORKED"):
            raise forked(self.place, f"writer {writer!r} has written batch {text.split()[1]}")
        raise HeadraceError(
            "SINK_REFUSED", f"{self.place} refuses: {text}. Correct the password or the user's permissions."
        )

    def __repr__(self) -> str:
        what = {"key": str(self.key), "value": self.value, "ttl": self.ttl, "password": self.address.password}
        return call_text(to_redis, self.address.shown, **what, writers=self.writers, guarantee=self.guarantee)


@stable
def to_redis(
    url: str,
    *,
    key: str,
    value: Value = "hash",
    ttl: Duration | None = None,
    password: str | Secret | None = None,
    writers: int | None = None,
    guarantee: Guarantee = "exactly_once",
) -> RedisSink:
    """Write the last row of each key, as a hash of its columns or as JSON, exactly once.

    ``key`` is the name of a Redis key with columns in braces, flattened ones such as ``window_start`` too. A
    changelog's deletes delete their keys. ``ttl`` lets keys expire.

    >>> to_redis("redis://:hunter2@cache:6379/0", key="spend:{account}:{window_start}", ttl="1 day")
    hr.to_redis('redis://:***@cache:6379/0', key='spend:{account}:{window_start}', ttl='1 day')
    """
    check_choice(Value, value=value)
    check_delivery(guarantee, writers)
    if ttl is not None:
        positive_microseconds(ttl, argument="ttl")
    return RedisSink(RedisAddress(url, password), parse_template(key), value, ttl, writers, guarantee)
