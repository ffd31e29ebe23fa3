"""``hr.read_kafka``: Spark plans batches as slices of partitions, each once; ``kafka.reader`` reads them in tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from headrace.connectors.base.messages import KEY, Format, check_message_schema, message_decoder
from headrace.connectors.base.sink import Unreachable
from headrace.connectors.base.source import CAPS, ROW_POSITION, Gate, add_source, cap_of, declared_columns, source_name
from headrace.connectors.debezium.changes import DebeziumChanges
from headrace.connectors.debezium.decoder import debezium_messages
from headrace.connectors.kafka.positions import Positions, Start, Subscription, Topics, capped, slices, start_text
from headrace.connectors.kafka.reader import METADATA, KafkaReader
from headrace.errors import HeadraceError
from headrace.graph import active_graph
from headrace.outages import OutageMarker
from headrace.schemas import parse_ddl, polars_schema
from headrace.secrets import Secret
from headrace.stability import stable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW_SCHEMA = "value BINARY, _key BINARY, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
FORMAT = "headrace_kafka"
LARGEST_SLICE = 250_000
PATIENCE_SECONDS = 600.0
"""How long a run over what is there waits for brokers that do not answer."""


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
    subscription = Subscription(servers, topics, pattern, start_text(start), on_lost, options or {})
    decoder = (
        debezium_messages(schema, columns.types, format)
        if isinstance(schema, DebeziumChanges)
        else message_decoder(format, columns, avro_schema=avro_schema)
    )
    caps = active_graph().checkpoint / CAPS / called
    spark.dataSource.register(KafkaSlices)
    stream = spark.readStream.format(FORMAT).option("source", called).option("caps", str(caps))
    raw = stream.option("subscription", subscription.to_json()).load()
    reader = KafkaReader(subscription, decoder, declared)
    gate = Gate(called, reader, None, adds_position, ingestion_reader=replace(reader, arrival=True))
    return add_source(
        gate,
        raw,
        struct,
        {"kind": "kafka", "topics": list(topics), "format": format, "schema": str(schema or RAW_SCHEMA)},
        divided=True,
        caps=caps,
        prepare=lambda: Topics(subscription).check(),
        changes=isinstance(schema, DebeziumChanges),
    )


class KafkaSlices(DataSource):
    """Kafka as Spark sees it: a stream of slices, each handed out exactly once; tasks read what is in them."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "topic STRING, partition INT, first BIGINT, until BIGINT"

    def streamReader(self, schema: Any) -> KafkaSliceReader:  # noqa: N802
        return KafkaSliceReader(
            self.options["source"], Subscription.from_json(self.options["subscription"]), Path(self.options["caps"])
        )


class KafkaSliceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides how far each batch reads; Spark logs that before the batch runs."""

    def __init__(self, source: str, subscription: Subscription, caps: Path) -> None:
        self._source = source
        self._subscription = subscription
        self._caps = caps
        self._outage = OutageMarker(str(caps.parent.parent), f"source.{source}", f"kafka {subscription!r}")
        self._target: Positions | None = None

    @cached_property
    def _topics(self) -> Topics:
        return Topics(self._subscription)

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the reader, and a client cannot be pickled.
        return {name: value for name, value in self.__dict__.items() if name != "_topics"}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"source": self._source, "positions": self._patiently(Topics.initial)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._patiently(Topics.latest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch reads; no further than the last one while the brokers do not answer."""
        positions: Positions = start["positions"]

        def there(topics: Topics) -> Positions:
            latest = self._target if self._target is not None else topics.latest()
            if self._subscription.on_lost == "fail":
                self._refuse_lost(positions, latest)
            return latest

        try:
            # Without news Spark would take a run over existing data as finished.
            latest = self._once(there) if self._target is None else self._patiently(there)
        except Unreachable:
            return start
        return {"source": self._source, "positions": {**positions, **capped(positions, latest, cap_of(self._caps))}}

    def _once(self, ask: Callable[[Topics], Positions]) -> Positions:
        try:
            answer = ask(self._topics)
        except Unreachable as problem:
            self._outage.begin(str(problem))
            # A client that lived through an outage may go on saying that partitions have no leader.
            self.__dict__.pop("_topics", None)
            raise
        self._outage.end()
        return answer

    def _patiently(self, ask: Callable[[Topics], Positions]) -> Positions:
        asked = time.monotonic()
        while True:
            try:
                return self._once(ask)
            except Unreachable as problem:
                if time.monotonic() - asked > PATIENCE_SECONDS:
                    raise HeadraceError(
                        "SOURCE_UNREACHABLE",
                        f"kafka {self._subscription!r} has not answered for {PATIENCE_SECONDS:.0f} s: {problem}. Start "
                        "the brokers, then this run again: it continues where it stopped.",
                    ) from None
                time.sleep(1)

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

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        pieces = slices(start["positions"], end["positions"], largest=LARGEST_SLICE)
        return [InputPartition(astuple(piece)) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        yield partition.value
