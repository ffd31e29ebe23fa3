"""The Kafka sink: each writer's part of a batch and its mark are one transaction, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import polars as pl
from confluent_kafka.admin import AdminClient, ConfigResource

from headrace.connectors.base.sink import (
    ChangelogMode,
    Delivered,
    Guarantee,
    Mark,
    Unreachable,
    WriterBatch,
    check_delivery,
)
from headrace.connectors.kafka.client import PATIENCE, Cluster, Fenced, Message, Reports, let_go, unknown_topic
from headrace.connectors.kafka.topics import TopicSettings, create_missing
from headrace.connectors.kafka.transactions import claim, read_mark_of, write_each_time, write_once
from headrace.errors import DefinitionError, HeadraceError, check_choice
from headrace.keys import key_columns
from headrace.rendering import REFUSED, json_rows, json_values, last_changes, refused_rows
from headrace.secrets import Secret, call_text, shown_options
from headrace.stability import stable

Format = Literal["json", "raw"]
Changelog = Literal["log", "upsert"]
Refusals = dict[Message, tuple[str, str]]
"""Messages that are not sent or not taken, each with reason and detail."""
OVERHEAD = 128
"""Bytes that a broker counts besides value and key for a message alone in its batch."""


def messages(rows: pl.DataFrame, *, key: Sequence[str], format: Format) -> list[Message]:
    """The messages of the rows, in order."""
    values = json_rows(rows) if format == "json" else _bytes(rows["value"])
    return list(zip(values, _keys(rows, key), strict=True))


def tombstones(keys: pl.DataFrame) -> list[Message]:
    """The messages that delete keys.

    >>> tombstones(pl.DataFrame({"id": [7]}))
    [(None, b'7')]
    """
    return [(None, key) for key in _keys(keys, keys.columns)]


def too_large(messages: Sequence[Message], max_bytes: int) -> Refusals:
    """The messages that are too large."""
    room = max_bytes - OVERHEAD
    sizes = ((message, len(message[0] or b"") + len(message[1] or b"")) for message in messages)
    detail = "{} bytes; at most {} are allowed"
    return {message: ("MESSAGE_TOO_LARGE", detail.format(size, room)) for message, size in sizes if size > room}


def keyless(messages: Sequence[Message], cluster: Cluster, topic: str, *, needed: bool = False) -> Refusals:
    """The messages without a key, if they need one or the topic is compacted."""
    found = [message for message in messages if message[1] is None]
    if not found:
        return {}
    if needed:
        return dict.fromkeys(found, ("KEY_NULL", "the key is null, so the message is of no row of the table"))
    if "compact" not in topic_settings(cluster, topic).get(_CLEANUP, ""):
        return {}
    return dict.fromkeys(found, ("KEY_NULL", "the key is null, but the topic is compacted"))


def left_out(rows: pl.DataFrame, messages: Sequence[Message], refusals: Refusals) -> pl.DataFrame:
    """The rows whose messages are refused, for the dead letters."""
    if not refusals:
        return pl.DataFrame(schema=REFUSED)
    why = [refusals.get(message) for message in messages]
    reasons = pl.DataFrame([each for each in why if each is not None], ["reason", "detail"], orient="row")
    return refused_rows(rows.filter(pl.Series(map(bool, why))), "", "").with_columns(reasons)


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
_LIMIT, _CLEANUP = "max.message.bytes", "cleanup.policy"
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


def topic_settings(cluster: Cluster, topic: str) -> dict[str, str]:
    """The settings of a topic; none where the user may not read them."""
    asked, clients = ConfigResource("topic", topic), [AdminClient(cluster.settings({}))]
    try:
        described = cluster.answer(
            lambda: clients[0].describe_configs([asked], request_timeout=PATIENCE)[asked].result()
        )
    except Unreachable:
        raise
    except HeadraceError:
        return {}
    finally:
        let_go(clients)
    return {name: setting.value for name, setting in described.items()}


def check_topic(cluster: Cluster, topic: str, *, keyed: bool) -> None:
    """Fail unless the topic exists and accepts messages with or without keys up to the sink's limit."""
    reports = Reports()
    clients = [cluster.producer(reports, {})]
    try:
        # All topics: asking for one by name may create it.
        known = cluster.topics(clients[0], reports)
    finally:
        let_go(clients)
    if topic not in known:
        raise unknown_topic(cluster.servers, topic, known)
    settings = topic_settings(cluster, topic)
    limit, cleanup = settings.get(_LIMIT), settings.get(_CLEANUP, "")
    if not keyed and "compact" in cleanup:
        raise HeadraceError(
            "KEY_MISSING",
            f"kafka topic {topic!r} is compacted ({_CLEANUP}={cleanup}), so it accepts no message without a key. Give "
            "key=..., or set another policy.",
        )
    if limit is not None and int(limit) < cluster.max_bytes:
        raise HeadraceError(
            "MESSAGE_LIMIT",
            f"kafka topic {topic!r} accepts messages of {limit} bytes ({_LIMIT}), the sink would send up to "
            f"{cluster.max_bytes}. Give max_bytes={limit}, or raise the topic's limit.",
        )


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """A topic that rows are written to; with ``changes="upsert"`` it is a table, else a log of all changes."""

    topic: str
    cluster: Cluster
    partition_by: tuple[str, ...]
    """The key, so that its messages keep their order."""
    format: Format
    writers: int | None
    guarantee: Guarantee
    create: TopicSettings | None = None
    changes: Changelog = "log"

    @property
    def changelog_mode(self) -> ChangelogMode:
        return self.changes

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

    def check_target(self, columns: Mapping[str, pl.DataType]) -> None:
        try:
            check_topic(self.cluster, self.topic, keyed=bool(self.partition_by))
        except HeadraceError as problem:
            if self.create is None or problem.id != "TOPIC_UNKNOWN":
                raise
            self.create.check(self.cluster, self.topic)

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        self.check_columns(columns)
        if self.create is not None:
            create_missing(self.cluster, self.topic, self.create)
        check_topic(self.cluster, self.topic, keyed=bool(self.partition_by))
        if self.guarantee == "exactly_once":
            with ThreadPoolExecutor(CLAIMS_AT_ONCE) as threads:
                list(threads.map(lambda writer: claim(self.cluster, self.topic, writer, epoch), writers))

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        if self.guarantee == "at_least_once":
            return ()
        # Here the topic may be found to be missing, which says more than that its marks are.
        check_topic(self.cluster, self.topic, keyed=bool(self.partition_by))
        with ThreadPoolExecutor(CLAIMS_AT_ONCE) as threads:
            return [*threads.map(lambda part: read_mark_of(self.cluster, self.topic, part.writer), parts)]

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        superseded = 0
        if self.changes == "upsert":
            last = last_changes(rows, self.partition_by, changelog=part.batch.changelog)
            every = messages(last.upserts, key=self.partition_by, format=self.format) + tombstones(last.deletes)
            rows, superseded = pl.concat([last.upserts, last.deletes], how="diagonal"), last.superseded
        else:
            every = messages(rows, key=self.partition_by, format=self.format)
        refusals = too_large(every, self.cluster.max_bytes)
        if self.partition_by:
            refusals |= keyless(every, self.cluster, self.topic, needed=self.changes == "upsert")
        given = [message for message in every if message not in refusals] if refusals else every
        is_written, refused = self._write(given, part)
        refusals |= {message: ("MESSAGE_REFUSED", why) for message, why in refused.items()}
        letters = left_out(rows, every, refusals)
        taken = rows.height - letters.height
        counts = {"written": 0, "already_marked": taken} if is_written else {"written": taken}
        return Delivered(**counts, superseded=superseded, refused=None if letters.is_empty() else letters)

    def _write(self, given: Sequence[Message], part: WriterBatch) -> tuple[bool, Mapping[Message, str]]:
        """Write messages; whether an earlier attempt has, and those that the broker refuses."""
        if self.guarantee == "at_least_once":
            return False, write_each_time(self.cluster, self.topic, given)
        try:
            return write_once(self.cluster, self.topic, given, part)
        except Fenced:
            # Usually by another worker that wrote this writer's last batch; the mark, read again, decides.
            return write_once(self.cluster, self.topic, given, part)

    def check_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        for name in self.partition_by:
            if name not in columns:
                raise DefinitionError(
                    "KEY_UNKNOWN",
                    f"{self.place}: key {name!r} is not a column. Existing columns: {', '.join(columns)}.",
                )
        if self.format == "raw":
            others = sorted(set(columns) - {"value", *self.partition_by})
            if not isinstance(columns.get("value"), pl.Binary | pl.String) or others:
                raise DefinitionError(
                    "RAW_COLUMNS",
                    f"{self.place}: format='raw' writes a column 'value' of bytes or text, and key= another; these "
                    f"rows have {', '.join(columns)}. Select these columns, or use format='json'.",
                )

    def __repr__(self) -> str:
        where, options = {"servers": self.cluster.servers}, shown_options(dict(self.cluster.options)) or None
        how = {"key": self.partition_by, "format": self.format, "writers": self.writers, "guarantee": self.guarantee}
        topic = {"max_bytes": self.cluster.max_bytes, "options": options, "create": self.create}
        return call_text(to_kafka, self.topic, **where, **how, **topic, changes=self.changes)


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
    create: TopicSettings | None = None,
    changes: Changelog = "log",
) -> KafkaSink:
    """Write rows to a topic as JSON objects, or with ``format="raw"`` the bytes of a column ``value``, exactly once.

    A message's key is the text of the ``key`` column, or a JSON object of several. A raw row whose value is null is a
    tombstone. Rows of more than ``max_bytes`` become dead letters. ``options`` are librdkafka's. With
    ``create=hr.topic(partitions=4)`` a missing topic is created at the start. Consumers must read with
    ``isolation.level=read_committed``.

    With ``changes="upsert"`` the topic is a table by ``key``, as Flink's upsert-kafka: of a changelog's batch only the
    last change of each key is written, without the column ``change``, and a delete as a tombstone.

    >>> to_kafka("spend", servers="localhost:9092", key="account", options={"sasl.password": "hunter2"})
    hr.to_kafka('spend', servers='localhost:9092', key=['account'], options={'sasl.password': '***'})
    """
    check_choice(Format, format=format)
    check_choice(Changelog, changes=changes)
    check_delivery(guarantee, writers)
    for name in options or {}:
        if name in _OURS:
            raise DefinitionError(
                "OPTION_RESERVED",
                f"option {name!r} is set by Headrace, because the guarantee depends on it. Leave it out.",
            )
    cluster = Cluster(servers, tuple(sorted((options or {}).items())), max_bytes)
    names = key_columns(key)
    if changes == "upsert" and (not names or format != "json"):
        lacks = f"format={format!r}" if names else "no key="
        raise DefinitionError(
            "UPSERT_NEEDS_KEY",
            f"to_kafka({topic!r}, changes='upsert') has {lacks}. Its messages are JSON and have the table's key: write "
            "key='id'.",
        )
    return KafkaSink(topic, cluster, names, format, writers, guarantee, create, changes)
