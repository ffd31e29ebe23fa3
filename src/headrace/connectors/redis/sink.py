"""Redis, exactly once: each chunk of a share and its mark are written by one script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
)
from headrace.connectors.redis.chunks import Chunk, Chunks, Text, cut
from headrace.connectors.redis.client import check_url, client_of, run
from headrace.connectors.redis.scripts import CLAIM, Value, chunk_script
from headrace.durations import Duration, positive_microseconds
from headrace.errors import DefinitionError, HeadraceError
from headrace.secrets import HIDDEN, Secret, without_password
from headrace.shaping import flat_schema
from headrace.template import Template, parse_template

_REFUSED = (redis.AuthenticationError, redis.exceptions.NoPermissionError)
_PASSING = ("OOM", "LOADING", "READONLY", "MASTERDOWN", "BUSY", "TRYAGAIN", "MISCONF", "NOREPLICAS", "GAP")
_AWAY = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.NoScriptError,
)


@dataclass(frozen=True, slots=True)
class RedisSink:
    """Keys of a Redis server, one for each row's key."""

    url: str
    key: Template
    value: Value
    ttl: Duration | None
    password: str | Secret | None
    writers: int | None
    guarantee: Guarantee

    @property
    def target(self) -> str:
        """The keys."""
        return f"redis keys {str(self.key)!r}"

    @property
    def place(self) -> str:
        """The keys and their server."""
        return f"{self.target} at {without_password(self.url)}"

    @property
    def why(self) -> str:
        """How the guarantee is kept."""
        if self.guarantee == "at_least_once":
            return "every chunk is answered before the batch ends; a batch that runs again sets the same keys again"
        return (
            "each chunk of 1,000 keys and its mark are written by one script, so a crash loses both or neither; "
            "with appendfsync=everysec a crash of its machine, or of Redis while its disk is slow, can lose the last "
            "seconds of both, and when those held a whole batch the flow stops with [MARK_LOST] (appendfsync=always "
            "rules it out)"
        )

    @property
    def changelog_mode(self) -> ChangelogMode:
        """A change sets or deletes its key."""
        return "upsert"

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns of the key, so that its changes keep their order."""
        return self.key.columns

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        """Check the key's columns and the server, and claim the epoch of every writer."""
        self.key.check(flat_schema(columns))
        if self._ask(lambda client: client.info("cluster")).get("cluster_enabled"):
            raise HeadraceError(
                "REDIS_CLUSTER",
                f"{self.place} is a Redis Cluster, where no script can write keys and mark together. "
                "Give the address of a single server.",
            )
        if self.guarantee == "at_least_once":
            return
        for writer in writers:
            self._claim(writer, epoch)

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        """Write a writer's part of a batch chunk by chunk, beginning after the last chunk that is marked."""
        part_cut = cut(rows, self.key, self.value)
        done = self._done(part_cut, part) if self.guarantee == "exactly_once" else 0
        self._write(list(enumerate(part_cut.chunks))[done:], len(part_cut.chunks), part)
        changes = [chunk.changes for chunk in part_cut.chunks]
        refused = None if part_cut.refused.is_empty() else part_cut.refused
        return Delivered(sum(changes[done:]), part_cut.superseded, sum(changes[:done]), refused)

    def _claim(self, writer: str, epoch: int) -> None:
        try:
            self._ask(lambda client: client.eval(CLAIM, 1, self._mark(writer), str(epoch)))
        except _Fenced as fenced:
            check_epoch(epoch, fenced.epoch, place=self.place, writer=writer)
            raise

    def _done(self, part_cut: Chunks, part: WriterBatch) -> int:
        """How many chunks an earlier attempt has written."""
        fields = ["epoch", "generation", "batch", "rows", "chunk", "chunks"]
        answer = self._ask(lambda client: client.hmget(self._mark(part.writer), fields))
        epoch, generation, batch, rows, chunk, chunks = (None if text is None else int(text) for text in answer)
        mark = Mark(epoch or 0, generation, batch, rows or 0)
        if not already_written(part, mark, place=self.place):
            return 0
        if chunks != len(part_cut.chunks):
            raise HeadraceError(
                "BATCH_DIFFERS",
                f"{self.place}: batch {part.batch.batch} had {chunks} chunks when it was begun and has "
                f"{len(part_cut.chunks)} now. A step of the pipeline is not repeatable; go on from a new checkpoint.",
            )
        return (chunk or 0) + 1

    def _write(self, chunks: Sequence[tuple[int, Chunk]], total: int, part: WriterBatch) -> None:
        script = chunk_script(self.value, marked=self.guarantee == "exactly_once")

        def send(client: redis.Redis) -> None:
            sha = client.script_load(script)
            run(client, (self._command(sha, number, chunk, total, part) for number, chunk in chunks))

        try:
            self._ask(send)
        except _Fenced as fenced:
            check_epoch(part.batch.epoch, fenced.epoch, place=self.place, writer=part.writer)
            raise

    def _command(self, sha: str, number: int, chunk: Chunk, total: int, part: WriterBatch) -> tuple[Text | int, ...]:
        life = 0 if self.ttl is None else max(1, positive_microseconds(self.ttl, argument="ttl") // 1000)
        mark = (part.batch.epoch, part.batch.generation, part.batch.batch, number, total, chunk.changes, life)
        keys = (self._mark(part.writer), *chunk.deletes, *chunk.sets)
        return ("EVALSHA", sha, len(keys), *keys, *mark, len(chunk.deletes), *chunk.values)

    def _mark(self, writer: str) -> str:
        return f"headrace:mark:{writer}:{self.key}"

    def _ask(self, question: Callable[[redis.Redis], Any]) -> Any:
        """An answer of the server, with its errors told apart."""
        try:
            return question(client_of(self.url, self.password))
        except _REFUSED as problem:
            text = str(problem)
        except _AWAY as problem:
            raise Unreachable(f"{self.place}: {problem}") from None
        except redis.ResponseError as problem:
            text = str(problem)
            if text.startswith("FENCED"):
                raise _Fenced(int(text.split()[1])) from None
            if text.startswith(_PASSING):
                raise Unreachable(f"{self.place}: {text}") from None
        raise HeadraceError("SINK_REFUSED", f"{self.place} refuses: {text}. Mend the password or the user's rights.")

    def __repr__(self) -> str:
        given = {
            "value": self.value if self.value != "hash" else None,
            "ttl": self.ttl,
            "password": HIDDEN if isinstance(self.password, str) else self.password,
            "writers": self.writers,
            "guarantee": self.guarantee if self.guarantee != "exactly_once" else None,
        }
        more = "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)
        return f"hr.to_redis({without_password(self.url)!r}, key={str(self.key)!r}{more})"


class _Fenced(Exception):
    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self.epoch = epoch


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
    """Keep the last row of each key, as a hash of its columns or as JSON; deleted rows of a changelog delete the key.

    >>> to_redis("redis://:hunter2@cache:6379/0", key="spend:{account}:{window_start}", ttl="1 day")
    hr.to_redis('redis://:***@cache:6379/0', key='spend:{account}:{window_start}', ttl='1 day')
    """
    if value not in ("hash", "json"):
        raise DefinitionError("VALUE_UNKNOWN", f"value={value!r} is not known. Use 'hash' or 'json'.")
    check_delivery(guarantee, writers)
    if ttl is not None:
        positive_microseconds(ttl, argument="ttl")
    check_url(url)
    return RedisSink(url, parse_template(key), value, ttl, password, writers, guarantee)
