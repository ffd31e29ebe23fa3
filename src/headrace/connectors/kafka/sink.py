"""Kafka, exactly once: each writer's part of a batch is one transaction, which holds its mark too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import polars as pl

from headrace.connectors.base.sink import (
    ChangelogMode,
    Delivered,
    Guarantee,
    Mark,
    WriterBatch,
    already_written,
    check_delivery,
)
from headrace.connectors.kafka.clients import Cluster, Fenced, Message
from headrace.connectors.kafka.messages import Format, messages
from headrace.connectors.kafka.plain_sink import write_plainly
from headrace.connectors.kafka.topic import check_topic
from headrace.connectors.kafka.transactions import claim, transactions
from headrace.errors import DefinitionError, HeadraceError
from headrace.keys import key_columns
from headrace.secrets import Secret, shown_options

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
    """A topic."""

    topic: str
    cluster: Cluster
    key: tuple[str, ...]
    format: Format
    writers: int | None
    guarantee: Guarantee

    @property
    def target(self) -> str:
        """The topic."""
        return f"kafka topic {self.topic!r}"

    @property
    def place(self) -> str:
        """The topic and its servers."""
        return f"{self.target} at {self.cluster.servers}"

    @property
    def why(self) -> str:
        """How the guarantee is kept."""
        if self.guarantee == "at_least_once":
            return "every message is acknowledged before the batch ends; a batch that runs again is written again"
        return (
            "each writer's part of a batch and its mark are one Kafka transaction: readers with "
            "isolation.level=read_committed see that part once and as a whole (with writers=1 the whole batch); a mark "
            "expires when the flow does not run for offsets.retention.minutes (by default 7 days), and the flow then "
            "stops with [MARK_LOST]"
        )

    @property
    def changelog_mode(self) -> ChangelogMode:
        """Every change is a message of its own."""
        return "log"

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The key, so that its messages keep their order."""
        return self.key

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        """Check columns and topic, and claim the epoch of every writer."""
        self._check_columns(columns)
        check_topic(self.cluster, self.topic)
        if self.guarantee == "at_least_once":
            return
        with ThreadPoolExecutor(CLAIMS_AT_ONCE) as threads:
            list(threads.map(lambda writer: claim(self.cluster, self.topic, writer, epoch, place=self.place), writers))

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        """Write a writer's part of a batch in one transaction."""
        taken, refused = messages(rows, key=self.key, format=self.format, max_bytes=self.cluster.max_bytes)
        if self.guarantee == "at_least_once":
            write_plainly(self.cluster, self.topic, taken)
            return Delivered(len(taken), refused=refused)
        try:
            written = self._write(taken, part)
        except Fenced:
            # Mostly by another worker that had this writer's last batch; the mark, read anew, decides who goes on.
            written = self._write(taken, part)
        return Delivered(written, already_marked=len(taken) - written, refused=refused)

    def _write(self, taken: Sequence[Message], part: WriterBatch) -> int:
        with transactions(self.cluster, self.topic, part, place=self.place) as (ours, stored):
            if already_written(part, None if stored is None else stored.mark, place=self.place):
                return 0
            batch = part.batch
            ours.write(taken, Mark(batch.epoch, batch.generation, batch.batch, len(taken)))
            return len(taken)

    def _check_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        for name in self.key:
            if name not in columns:
                raise HeadraceError(
                    "KEY_UNKNOWN",
                    f"{self.place}: key {name!r} is not a column. Existing columns: {', '.join(columns)}.",
                )
        if self.format == "raw":
            others = sorted(set(columns) - {"value", *self.key})
            if not isinstance(columns.get("value"), pl.Binary | pl.String) or others:
                raise HeadraceError(
                    "RAW_COLUMNS",
                    f"{self.place}: format='raw' writes a column 'value' of bytes or text, with key= another column; "
                    f"these rows have {', '.join(columns)}. Select what is to be written, or use format='json'.",
                )

    def __repr__(self) -> str:
        given = {
            "key": list(self.key) or None,
            "format": self.format if self.format != "json" else None,
            "writers": self.writers,
            "guarantee": self.guarantee if self.guarantee != "exactly_once" else None,
            "max_bytes": self.cluster.max_bytes if self.cluster.max_bytes != MAX_BYTES else None,
            "options": shown_options(dict(self.cluster.options)) or None,
        }
        more = "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)
        return f"hr.to_kafka({self.topic!r}, servers={self.cluster.servers!r}{more})"


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
    """Write rows to a topic as JSON objects, or with ``format="raw"`` the bytes of a column ``value`` as they are.

    A message's key is the text of the ``key`` column, or a JSON object of several. A raw row whose value is null is a
    tombstone. Rows of more than ``max_bytes`` become dead letters. ``options`` are librdkafka's.

    >>> to_kafka("spend", servers="localhost:9092", key="account", options={"sasl.password": "hunter2"})
    hr.to_kafka('spend', servers='localhost:9092', key=['account'], options={'sasl.password': '***'})
    """
    if format not in ("json", "raw"):
        raise DefinitionError("FORMAT_UNKNOWN", f"format={format!r} is not known. Use 'json' or 'raw'.")
    check_delivery(guarantee, writers)
    for name in options or {}:
        if name in _OURS:
            raise DefinitionError(
                "OPTION_RESERVED", f"option {name!r} is set by Headrace, which needs it for its promise. Leave it out."
            )
    cluster = Cluster(servers, tuple(sorted((options or {}).items())), max_bytes)
    return KafkaSink(topic, cluster, key_columns(key), format, writers, guarantee)
