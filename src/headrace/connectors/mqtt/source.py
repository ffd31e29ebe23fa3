"""``hr.read_mqtt``: messages of MQTT topics, at least once into a landing log, from there exactly once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.outages import OutageMarker
from headrace.checkpoint.storage import LocalStorage, incomplete
from headrace.connectors.base.decoding import POSITION, Decoded
from headrace.connectors.base.messages import MessageDecoder, Payloads, check_message_schema, message_decoder
from headrace.connectors.base.source import LANDING, Gate, add_source, declared_columns
from headrace.connectors.files.listing import PATH, FileEnumerator
from headrace.connectors.mqtt.feed import CLIENT, Broker, MqttFeed, landed
from headrace.errors import check_choice, check_name
from headrace.graph import active_graph
from headrace.schemas import MOMENT, parse_ddl, polars_schema
from headrace.secrets import Secret
from headrace.stability import stable
from headrace.wheel.task import Task

Format = Literal["json", "csv", "raw"]
METADATA: Mapping[str, pl.DataType] = {"_topic": pl.String(), "_timestamp": MOMENT}
"""Columns that a schema may declare besides those of the payload: the topic, and when the message arrived."""
RAW_SCHEMA = "value BINARY, _topic STRING, _timestamp TIMESTAMP"


@dataclass(frozen=True, slots=True)
class MqttReader:
    """Reads the files of a landing log."""

    decoder: MessageDecoder
    columns: Mapping[str, pl.DataType]
    """The declared columns in order, those of ``METADATA`` among them."""

    def read(self, given: Sequence[tuple[str, int, int]], task: Task) -> Iterator[Decoded]:
        # A row's position is its place in the file.
        for path, _, _ in given:
            messages = pl.DataFrame(landed(path))
            positions = np.arange(messages.height, dtype=np.int64)
            for decoded in self.decoder.read(Payloads.of(messages["payload"].to_list(), positions)):
                kept = messages[decoded.rows[POSITION]]
                known = kept.select(pl.col("topic").alias("_topic"), pl.col("arrived").cast(MOMENT).alias("_timestamp"))
                rows = decoded.rows.hstack(known).select(*self.columns, POSITION)
                topics = messages[decoded.dead["position"]]["topic"]
                dead = decoded.dead.with_columns(pl.format("{} (topic {})", "detail", topics).alias("detail"))
                yield replace(decoded, rows=rows, dead=dead, origin=path, arrived=kept["arrived"])


class LandedFiles(FileEnumerator):
    """Finds new files of a landing log, whose name at the broker and newest file that was read must be there."""

    def check(self, since: dict[str, Any]) -> None:
        super().check(since)
        newest = max((path for name in since["lists"][-1:] for path in self._read(name)[PATH]), default=None)
        if newest is not None:
            for name in (CLIENT, newest.rpartition("/")[2]):
                if not Path(self.place, name).exists():
                    raise incomplete(self.place, f"{name} is missing, and flows have read from it")


@stable
def read_mqtt(
    spark: SparkSession,
    topics: str | Sequence[str],
    *,
    servers: str = "127.0.0.1:1883",
    schema: str | None = None,
    format: Format = "json",
    client_id: str | None = None,
    username: str | None = None,
    password: str | Secret | None = None,
    name: str | None = None,
) -> DataFrame:
    """The messages of topics (``plant/+/heat``, ``plant/#``); those that cannot be read become dead letters.

    A broker forgets what it has delivered, so a client on the driver receives messages with QoS 1: it stores them
    under ``<checkpoint>/landing/<name>`` and only then acknowledges them. After a crash between the two the broker
    delivers them again: at least once into the landing log. What has landed is processed exactly once. The files stay;
    remove old ones when no flow needs them, but never the newest. The broker keeps messages for 30 days while the
    pipeline is stopped, but not those published with QoS 0. ``schema`` may declare ``_topic`` and ``_timestamp`` (when
    the message arrived). ``client_id`` must be unique at the broker; by default one is made up for the checkpoint.

    >>> import headrace as hr
    >>> @hr.pipeline
    ... def heat(spark):
    ...     rows = hr.read_mqtt(spark, "plant/+/heat", servers="broker:1883", schema="celsius DOUBLE, _topic STRING")
    ...     hr.write("heat", rows, hr.to_console())
    """
    broker = Broker(servers, (topics,) if isinstance(topics, str) else tuple(topics), username, password)
    check_choice(Format, format=format)
    struct = parse_ddl(schema or RAW_SCHEMA)
    filled = {name: (kind,) for name, kind in METADATA.items()}
    check_message_schema(broker.topics[0], format, None if schema is None else struct, filled)
    declared = polars_schema(struct)
    decoder = message_decoder(format, declared_columns(struct, without=METADATA), avro_schema=None)
    graph = active_graph()
    called = name or re.sub(r"\W+", "_", broker.topics[0]).strip("_")
    check_name("source", called)
    landing = graph.checkpoint / LANDING / called

    def flows() -> list[LocalStorage]:
        return [LocalStorage(graph.checkpoint / flow.name) for flow in graph.flows.values() if called in flow.sources]

    def outage_markers() -> list[OutageMarker]:
        return [OutageMarker(flow, f"source.{called}", f"MQTT broker {servers}") for flow in flows()]

    feed = MqttFeed(broker, landing, client_id, outage_markers)
    fingerprint = {"kind": "mqtt", "topics": list(broker.topics), "format": format, "schema": schema or RAW_SCHEMA}
    gate = Gate(called, MqttReader(decoder, declared), None)
    return add_source(
        spark,
        gate,
        lambda storage: LandedFiles(called, storage, str(landing.absolute())),
        struct,
        fingerprint,
        prepare=broker.check,
        feed=feed,
    )
