"""``hr.read_kafka``: a batch is slices of partitions; ``kafka.reader`` reads them in tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, Literal

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.base.enumerator import Planned, divided
from headrace.connectors.base.messages import KEY, Format, check_message_schema, message_decoder
from headrace.connectors.base.source import ROW_POSITION, Gate, add_source, declared_columns, source_name
from headrace.connectors.debezium.changes import DebeziumChanges
from headrace.connectors.debezium.decoder import debezium_messages
from headrace.connectors.kafka.positions import Positions, Start, Subscription, Topics, capped, slices, start_text
from headrace.connectors.kafka.reader import METADATA, KafkaReader
from headrace.errors import HeadraceError
from headrace.schemas import parse_ddl, polars_schema
from headrace.secrets import Secret
from headrace.stability import stable

RAW_SCHEMA = "value BINARY, _key BINARY, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
LARGEST_SLICE = 250_000


@stable
def read_kafka(
    spark: SparkSession,
    topic: str | Sequence[str],
    *,
    servers: str,
    schema: str | DebeziumChanges | None = None,
    format: Format = "json",
    pattern: bool = False,
    start: Start = "earliest",
    on_lost: Literal["fail", "count"] = "fail",
    avro_schema: str | Mapping[str, Any] | None = None,
    name: str | None = None,
    options: Mapping[str, str | Secret] | None = None,
) -> DataFrame:
    """The rows of committed messages of topics; those that cannot be read become dead letters with their offset.

    ``schema`` declares the columns of a message's value; it may also name ``_key``, ``_topic``, ``_partition``,
    ``_offset`` and ``_timestamp``, which Kafka fills, and ``_position``, which identifies a row. Or it is
    ``hr.debezium_changes(...)``. ``start`` is ``"earliest"``, ``"latest"``, a moment, or offsets
    (``{"payments": {0: 17}}``), for a new checkpoint; ``pattern`` makes ``topic`` a regular expression. Offsets that
    no longer exist stop the flow, or are counted with ``on_lost="count"``. ``options`` are librdkafka's.

    >>> import headrace as hr
    >>> @hr.pipeline
    ... def payments(spark):
    ...     rows = hr.read_kafka(spark, "payments", servers="broker:9092", schema="id STRING, amount DOUBLE")
    ...     hr.write("payments", rows, hr.to_console())
    """
    topics = (topic,) if isinstance(topic, str) else tuple(topic)
    struct = schema.struct if isinstance(schema, DebeziumChanges) else parse_ddl(schema or RAW_SCHEMA)
    filled: dict[str, tuple[pl.DataType, ...]] = {name: (kind,) for name, kind in METADATA.items()}
    filled |= {KEY: (pl.Binary(), pl.String()), ROW_POSITION: (pl.String(),)}
    check_message_schema(topics[0], format, None if schema is None else struct, filled)
    declared = polars_schema(struct)
    adds_position = declared.pop(ROW_POSITION, None) is not None
    columns = declared_columns(struct, without=(*METADATA, ROW_POSITION))
    called = source_name(name, topics[0])
    subscription = Subscription(servers, topics, pattern, start_text(start), on_lost, tuple((options or {}).items()))
    decoder = (
        debezium_messages(schema, columns.types, format)
        if isinstance(schema, DebeziumChanges)
        else message_decoder(format, columns, avro_schema=avro_schema)
    )
    reader = KafkaReader(subscription, decoder, declared)
    gate = Gate(called, reader, None, adds_position, ingestion_reader=replace(reader, arrival=True))
    return add_source(
        spark,
        gate,
        lambda _: KafkaEnumerator(subscription),
        struct,
        {"kind": "kafka", "topics": list(topics), "format": format, "schema": str(schema or RAW_SCHEMA)},
        divided=True,
        counts_rows=True,
        prepare=lambda: Topics(subscription).check(),
        changes=isinstance(schema, DebeziumChanges),
    )


class KafkaEnumerator:
    """Finds how far the partitions of a subscription reach. A position is the next offset of each partition."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._topics = Topics(subscription)
        self._target: Positions | None = None

    @property
    def place(self) -> str:
        return f"kafka {self._subscription!r}"

    def initial(self) -> Positions:
        return self._topics.initial()

    def stop_at_newest(self) -> None:
        self._target = self._topics.latest()

    def plan(self, since: Positions, *, most: int | None) -> Planned:
        latest = self._topics.latest() if self._target is None else self._target
        if self._subscription.on_lost == "fail":
            self._refuse_lost(since, latest)
        until = {**since, **capped(since, latest, most)}
        unread = {name: rows for name, end in latest.items() if (rows := end - until[name]) > 0}
        return Planned(until, unread, tuple(latest))

    def splits(self, since: Positions, until: Positions, *, tasks: int) -> list[list[tuple[Any, ...]]]:
        pieces = slices(since, until, largest=LARGEST_SLICE)
        runs = divided([piece.until - piece.first for piece in pieces], tasks)
        return [[astuple(piece) for piece in pieces[run]] for run in runs]

    def _refuse_lost(self, positions: Positions, latest: Positions) -> None:
        first = self._topics.earliest([name for name in positions if name in latest])
        for name, position in positions.items():
            if name not in latest or not first[name] <= position <= latest[name]:
                there = f"offsets {first[name]} to {latest[name]}" if name in latest else "no such partition any more"
                raise HeadraceError(
                    "OFFSETS_LOST",
                    f"kafka {self._subscription!r}: the flow is at offset {position} of {name}, the topic has {there}. "
                    "Restore the rows, start with a new checkpoint, or accept the loss with on_lost='count'.",
                )
