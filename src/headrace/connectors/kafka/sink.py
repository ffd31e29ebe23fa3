"""The Kafka sink: each writer's part of a batch and its mark are one transaction, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

from headrace.connectors.base.sink import ChangelogMode, Delivered, Guarantee, Mark, WriterBatch, check_delivery
from headrace.connectors.kafka.client import Cluster, Fenced, Message, check_topic
from headrace.connectors.kafka.transactions import claim, read_mark_of, write_each_time, write_once
from headrace.errors import DefinitionError, HeadraceError, check_choice
from headrace.keys import key_columns
from headrace.rendering import json_rows, json_values, refused_rows
from headrace.secrets import Secret, call_text, shown_options
from headrace.stability import stable

Format = Literal["json", "raw"]
OVERHEAD = 128
"""Bytes that a broker counts besides value and key for a message alone in its batch."""


def messages(
    rows: pl.DataFrame, *, key: Sequence[str], format: Format, max_bytes: int
) -> tuple[list[Message], pl.DataFrame | None]:
    """The messages of the rows in order, and the rows that are too large."""
    values = json_rows(rows) if format == "json" else _bytes(rows["value"])
    every = list(zip(values, _keys(rows, key), strict=True))
    room = max_bytes - OVERHEAD
    sizes = [len(value or b"") + len(key or b"") for value, key in every]
    if max(sizes, default=0) <= room:
        return every, None
    refused = refused_rows(rows.filter(pl.Series(sizes) > room), "MESSAGE_TOO_LARGE", "")
    detail = [f"{size} bytes; at most {room} are allowed" for size in sizes if size > room]
    taken = [message for message, size in zip(every, sizes, strict=True) if size <= room]
    return taken, refused.with_columns(pl.Series("detail", detail))


def _keys(rows: pl.DataFrame, key: Sequence[str]) -> list[bytes | None]:
    if not key:
        return [None] * rows.height
    if len(key) > 1:
        return list(json_rows(rows.select(key)))
    values = rows[key[0]]
    if isinstance(values.dtype, pl.String | pl.Binary):
        return _bytes(values)
    return [None if text == b"null" else text.strip(b'"') for text in json_values(values)]


def _bytes(values: pl.Series) -> list[bytes | None]:
    return values.cast(pl.Binary).to_list()


MAX_BYTES = 1_000_000
CLAIMS_AT_ONCE = 8
_OURS = (
    "bootstrap.servers",
    "transactional.id",
    "group.id",
    "enable.idempotence",
    "enable.auto.commit",
    "isolation.level",
    "message.max.bytes",
    "queue.buffering.max.messages",
    "delivery.report.only.error",
)


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """A topic that rows are written to; every change of a changelog is a message of its own."""

    changelog_mode: ClassVar[ChangelogMode] = "log"
    topic: str
    cluster: Cluster
    partition_by: tuple[str, ...]
    """The key, so that its messages keep their order."""
    format: Format
    writers: int | None
    guarantee: Guarantee

    @property
    def target(self) -> str:
        return f"kafka topic {self.topic!r}"

    @property
    def place(self) -> str:
        return self.cluster.place(self.topic)

    @property
    def why(self) -> str:
        if self.guarantee == "at_least_once":
            return "every message is acknowledged before the batch ends; a batch that runs again is written again"
        return (
            "each writer's part of a batch and its mark are one Kafka transaction: readers with "
            "isolation.level=read_committed see that part once and as a whole (with writers=1 the whole batch); a mark "
            "expires when the flow does not run for offsets.retention.minutes (by default 7 days), and the flow then "
            "stops with [MARK_LOST]"
        )

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        self._check_columns(columns)
        check_topic(self.cluster, self.topic)
        if self.guarantee == "exactly_once":
            with ThreadPoolExecutor(CLAIMS_AT_ONCE) as threads:
                list(threads.map(lambda writer: claim(self.cluster, self.topic, writer, epoch), writers))

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        if self.guarantee == "at_least_once":
            return ()
        # Here the topic may be found to be missing, which says more than that its marks are.
        check_topic(self.cluster, self.topic)
        with ThreadPoolExecutor(CLAIMS_AT_ONCE) as threads:
            return [*threads.map(lambda part: read_mark_of(self.cluster, self.topic, part.writer), parts)]

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        taken, refused = messages(rows, key=self.partition_by, format=self.format, max_bytes=self.cluster.max_bytes)
        if self.guarantee == "at_least_once":
            write_each_time(self.cluster, self.topic, taken)
            return Delivered(len(taken), refused=refused)
        try:
            written = write_once(self.cluster, self.topic, taken, part)
        except Fenced:
            # Usually by another worker that wrote this writer's last batch; the mark, read again, decides.
            written = write_once(self.cluster, self.topic, taken, part)
        return Delivered(written, already_marked=len(taken) - written, refused=refused)

    def _check_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        for name in self.partition_by:
            if name not in columns:
                raise HeadraceError(
                    "KEY_UNKNOWN",
                    f"{self.place}: key {name!r} is not a column. Existing columns: {', '.join(columns)}.",
                )
        if self.format == "raw":
            others = sorted(set(columns) - {"value", *self.partition_by})
            if not isinstance(columns.get("value"), pl.Binary | pl.String) or others:
                raise HeadraceError(
                    "RAW_COLUMNS",
                    f"{self.place}: format='raw' writes a column 'value' of bytes or text, and key= another; these "
                    f"rows have {', '.join(columns)}. Select these columns, or use format='json'.",
                )

    def __repr__(self) -> str:
        where, options = {"servers": self.cluster.servers}, shown_options(dict(self.cluster.options)) or None
        how = {"key": self.partition_by, "format": self.format, "writers": self.writers, "guarantee": self.guarantee}
        return call_text(to_kafka, self.topic, **where, **how, max_bytes=self.cluster.max_bytes, options=options)


@stable
def to_kafka(
    topic: str,
    *,
    servers: str,
    key: str | Sequence[str] | None = None,
    format: Format = "json",
    writers: int | None = None,
    guarantee: Guarantee = "exactly_once",
    max_bytes: int = MAX_BYTES,
    options: Mapping[str, str | Secret] | None = None,
) -> KafkaSink:
    """Write rows to a topic as JSON objects, or with ``format="raw"`` the bytes of a column ``value``, exactly once.

    A message's key is the text of the ``key`` column, or a JSON object of several. A raw row whose value is null is a
    tombstone. Rows of more than ``max_bytes`` become dead letters. ``options`` are librdkafka's. Consumers must read
    with ``isolation.level=read_committed``.

    >>> to_kafka("spend", servers="localhost:9092", key="account", options={"sasl.password": "hunter2"})
    hr.to_kafka('spend', servers='localhost:9092', key=['account'], options={'sasl.password': '***'})
    """
    check_choice(Format, format=format)
    check_delivery(guarantee, writers)
    for name in options or {}:
        if name in _OURS:
            raise DefinitionError(
                "OPTION_RESERVED",
                f"option {name!r} is set by Headrace, because the guarantee depends on it. Leave it out.",
            )
    cluster = Cluster(servers, tuple(sorted((options or {}).items())), max_bytes)
    return KafkaSink(topic, cluster, key_columns(key), format, writers, guarantee)
