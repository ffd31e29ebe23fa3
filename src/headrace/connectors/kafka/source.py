"""``hr.read_kafka``: rows of Kafka topics, each once, with a watermark for every partition."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from headrace.connectors.base.caps import FOLDER as CAPS
from headrace.connectors.base.decoding import Columns, type_name
from headrace.connectors.base.gate import ROW_POSITION, Gate
from headrace.connectors.base.messages import VALUE, Format, message_decoder
from headrace.connectors.base.source import Source, add_source, add_ticks
from headrace.connectors.debezium.changes import DebeziumChanges
from headrace.connectors.debezium.decoder import debezium_messages
from headrace.connectors.kafka.positions import Start, Subscription, Topics, start_text
from headrace.connectors.kafka.reader import METADATA, KafkaReader
from headrace.connectors.kafka.stream import FORMAT, KafkaSlices
from headrace.errors import DefinitionError
from headrace.graph import active_graph
from headrace.schemas import parse_ddl, polars_schema
from headrace.secrets import Secret

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW_SCHEMA = "value BINARY, _key BINARY, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"


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
    """The rows of one or more topics; messages that cannot be read become dead letters with partition and offset.

    ``schema`` declares the columns of a message's value, and may name beside them ``_key`` (BINARY or STRING),
    ``_topic``, ``_partition``, ``_offset`` and ``_timestamp``, which Kafka itself knows, and ``_position`` (STRING),
    which tells a row from all others; ``format="raw"`` has ``value`` and Kafka's own. With
    ``hr.debezium_changes(...)`` as schema the rows are a changelog. ``start`` is ``"earliest"``,
    ``"latest"``, a moment, or offsets (``{"payments": {0: 17}}``), and counts for a new checkpoint only. With
    ``pattern`` the topic is a regular expression. Partitions and topics that appear while the flow runs are read from
    their beginning. Offsets that no longer exist stop the flow, or are counted as lost with ``on_lost="count"``. Only
    committed transactions are read. ``options`` are those of librdkafka; a password in them is an ``hr.secret(...)``.
    """
    topics = (topic,) if isinstance(topic, str) else tuple(topic)
    if on_lost not in ("fail", "count"):
        raise DefinitionError("ON_LOST_UNKNOWN", f"on_lost={on_lost!r} is not known. Use 'fail' or 'count'.")
    if (schema is None) != (format == "raw"):
        raise DefinitionError(
            "SCHEMA_MISSING",
            f"topic {topics[0]!r}: format={format!r} "
            + (
                "needs schema='...' with the columns of a message."
                if schema is None
                else "has columns of its own. Leave schema out."
            ),
        )
    struct = schema.struct if isinstance(schema, DebeziumChanges) else parse_ddl(schema or RAW_SCHEMA)
    declared = polars_schema(struct)
    _check_metadata(topics[0], declared, {field.name: field.nullable for field in struct.fields})
    read = {column: kind for column, kind in declared.items() if column != ROW_POSITION}
    value_columns = {column: kind for column, kind in read.items() if column not in METADATA}
    required = frozenset(field.name for field in struct.fields if not field.nullable)
    called = name or re.sub(r"\W", "_", topics[0])
    subscription = Subscription(servers, topics, pattern, start_text(start), on_lost, options or {})
    decoder = (
        debezium_messages(schema, value_columns, format)
        if isinstance(schema, DebeziumChanges)
        else message_decoder(format, Columns(value_columns, required), avro_schema=avro_schema)
    )
    graph = active_graph()
    caps = graph.checkpoint / CAPS / called
    spark.dataSource.register(KafkaSlices)
    reader = spark.readStream.format(FORMAT).option("source", called).option("caps", str(caps))
    raw = reader.option("subscription", subscription.to_json()).load()
    gate = Gate(called, KafkaReader(subscription, decoder, read), None, tells_position=ROW_POSITION in declared)
    folder = graph.checkpoint / "ticks" / called
    fingerprint: dict[str, object] = {
        "kind": "kafka",
        "topics": list(topics),
        "format": format,
        "schema": str(schema or RAW_SCHEMA),
    }
    source = Source(add_ticks(raw, folder), gate, struct)
    return add_source(
        source,
        fingerprint,
        folder,
        divided=True,
        caps=caps,
        prepare=lambda: Topics(subscription).check(),
        changes=isinstance(schema, DebeziumChanges),
    )


def _check_metadata(topic: str, declared: Mapping[str, Any], nullable: Mapping[str, bool]) -> None:
    known = {**METADATA, ROW_POSITION: pl.String()}
    for column, kind in declared.items():
        if column not in known:
            continue
        allowed = ("BINARY", "STRING") if column == "_key" else (type_name(known[column]),)
        if type_name(kind) not in allowed:
            raise DefinitionError(
                "METADATA_TYPE",
                f"topic {topic!r}: column {column!r} is filled by Kafka and is {' or '.join(allowed)}, "
                f"declared {type_name(kind)}. Declare it so, or leave it out.",
            )
        if not nullable[column] and column == "_key":
            raise DefinitionError(
                "METADATA_TYPE", f"topic {topic!r}: a message may have no key. Declare _key without NOT NULL."
            )
    if all(column in known for column in declared):
        raise DefinitionError(
            "SCHEMA_MISSING", f"topic {topic!r}: the schema names no column of the message itself, as {VALUE!r}."
        )
