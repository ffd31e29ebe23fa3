"""Reads slices of Kafka partitions in tasks, with a consumer that lives as long as its worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import numpy as np
import polars as pl
from confluent_kafka import KafkaException

from headrace.checkpoint.outages import OutageMarker
from headrace.connectors.base.conversion import from_bytes
from headrace.connectors.base.decoding import DEAD_SCHEMA, FOUND_CHARACTERS, POSITION, RAW_BYTES, Decoded
from headrace.connectors.base.messages import MessageDecoder, Payloads
from headrace.connectors.kafka.consumer import PartitionConsumer, Wanted, open_consumer
from headrace.connectors.kafka.positions import Slice, Subscription
from headrace.errors import HeadraceError
from headrace.schemas import MOMENT
from headrace.wheel.task import Task

CHUNK_MESSAGES = 50_000
"""How many messages are decoded together."""
POLLED_AT_ONCE = 10_000
"""The most messages that one poll takes from librdkafka."""
FETCHED_AHEAD = 20_000
"""How many messages librdkafka keeps ready: few, because those after the end of a slice are fetched in vain."""
POLL_SECONDS = 1.0
REPORTED_AFTER_SECONDS = 5.0
METADATA: Mapping[str, pl.DataType] = {
    "_key": pl.Binary(),
    "_topic": pl.String(),
    "_partition": pl.Int32(),
    "_offset": pl.Int64(),
    "_timestamp": MOMENT,
}
"""Columns that a schema may declare besides those of the value: what Kafka itself knows about a message."""

_CONSUMERS: dict[Subscription, PartitionConsumer] = {}


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """Turns slices into rows."""

    subscription: Subscription
    decoder: MessageDecoder
    columns: Mapping[str, pl.DataType]
    """The declared columns in order, with those of ``METADATA``."""
    arrival: bool = False
    """Whether rows need their arrival time."""

    def read(self, given: Sequence[Sequence[Any]], task: Task) -> Iterator[Decoded]:
        keyed = self.decoder.keyed
        wanted = Wanted(keyed or "_key" in self.columns, keyed or self.arrival or "_timestamp" in self.columns)
        for piece in starmap(Slice, given):
            writer = f"source.{piece.topic}.{piece.partition}"
            outage = OutageMarker(task.state.storage, writer, f"kafka topic {piece.name}")
            consumption = _Consumption(self.subscription, piece, outage, wanted)
            lost = consumption.lost()
            for polled in consumption.chunks(piece.first + lost):
                payloads = Payloads.concat(polled)
                for decoded in self.decoder.read(payloads) if polled or lost else ():
                    yield replace(self._placed(decoded, payloads, piece, task), lost=lost)
                    lost = 0

    def _placed(self, decoded: Decoded, payloads: Payloads, piece: Slice, task: Task) -> Decoded:
        """Rows with what Kafka itself knows about their messages."""
        if self.columns.get("_key") == pl.String:
            decoded = _with_text_keys(decoded, payloads)
        kept = np.searchsorted(payloads.positions, decoded.rows[POSITION].to_numpy())
        # Keys and times are there only if they are wanted.
        known: dict[str, Callable[[], pl.Series | pl.Expr]] = {
            "_key": lambda: pl.Series(payloads.keys, dtype=pl.Binary).gather(kept).cast(self.columns["_key"]),
            "_topic": lambda: pl.lit(piece.topic),
            "_partition": lambda: pl.lit(piece.partition, pl.Int32),
            "_offset": lambda: pl.Series(payloads.positions[kept]),
            "_timestamp": lambda: pl.Series(payloads.times).gather(kept).cast(MOMENT),
        }
        filled = [known[column]().alias(column) for column in self.columns if column in known]
        rows = decoded.rows.with_columns(filled).select(*self.columns, POSITION)
        times = pl.Series(payloads.times).gather(kept) if self.arrival else task.record.clock
        return replace(decoded, rows=rows, origin=piece.name, arrived=times, partition=piece.name)


def _with_text_keys(decoded: Decoded, payloads: Payloads) -> Decoded:
    """Without the rows whose key is not UTF-8: their messages become dead letters."""
    keys, positions = pl.Series(payloads.keys, dtype=pl.Binary), payloads.positions
    strange = positions[(from_bytes(keys).is_null() & keys.is_not_null()).to_numpy()]
    refused = decoded.rows[POSITION].is_in(strange)
    if not refused.any():
        return decoded
    offsets = decoded.rows[POSITION].filter(refused).unique(maintain_order=True)
    found = keys.gather(np.searchsorted(positions, offsets.to_numpy()))
    opening = "the key holds bytes that are not UTF-8, in hex "
    detail = [opening + key[: FOUND_CHARACTERS // 2].hex() for key in found]
    raw = payloads.lines.raw_at(offsets, RAW_BYTES)
    dead = pl.DataFrame({"position": offsets, "reason": "NOT_UTF8", "detail": detail, "raw": raw}, schema=DEAD_SCHEMA)
    return replace(decoded, rows=decoded.rows.filter(~refused), dead=pl.concat([decoded.dead, dead]))


@dataclass(slots=True)
class _Consumption:
    """Fetches one slice; waits as long as the broker is away."""

    _subscription: Subscription
    _piece: Slice
    _outage: OutageMarker
    _wanted: Wanted

    @property
    def _consumer(self) -> PartitionConsumer:
        return _consumer(self._subscription)

    def lost(self) -> int:
        """How many of the slice's rows no longer exist; an error unless ``on_lost`` is ``count``."""
        first, _ = self._bounds()
        gone = max(0, min(first, self._piece.until) - self._piece.first)
        if gone and self._subscription.on_lost == "fail":
            raise HeadraceError(
                "OFFSETS_LOST",
                f"kafka {self._subscription!r}: {gone} rows starting at offset {self._piece.first} of "
                f"partition {self._piece.partition} are gone; it now begins at {first}. Use a new checkpoint, or "
                "on_lost='count'.",
            )
        return gone

    def _bounds(self) -> tuple[int, int]:
        while True:
            try:
                bounds = self._consumer.bounds(self._piece.topic, self._piece.partition, POLL_SECONDS * 5)
            except KafkaException as problem:
                self._outage.begin(problem.args[0].str())
                # Some errors come at once, and a consumer may go on giving the first one it got.
                time.sleep(POLL_SECONDS)
                self._renew()
            else:
                self._outage.end()
                return bounds

    def chunks(self, following: int) -> Iterator[list[Payloads]]:
        """The slice's messages from an offset on, in chunks that are decoded together; the last may be empty."""
        held: list[Payloads] = []
        until, heard = self._piece.until, time.monotonic()
        self._consumer.assign(self._piece.topic, self._piece.partition, following)
        try:
            while following < until:
                polled = self._consumer.poll(until - following, POLL_SECONDS, (following, until), self._wanted)
                count = len(polled.payloads)
                if count:
                    following = int(polled.payloads.positions[-1]) + 1
                    held.append(polled.payloads)
                if sum(map(len, held)) >= CHUNK_MESSAGES:
                    yield held
                    held = []
                # Offsets may have no message: where a transaction ended, or where compaction removed it.
                if polled.reached >= until:
                    break
                if polled.failure is not None:
                    self._outage.begin(polled.failure.str())
                    self._start_anew(following)
                if count:
                    heard = time.monotonic()
                    self._outage.end()
                elif time.monotonic() - heard > REPORTED_AFTER_SECONDS:
                    self._outage.begin("no answer")
        finally:
            self._consumer.unassign()
            self._outage.end()
        yield held

    def _start_anew(self, following: int) -> None:
        """Continue with a new consumer: after an outage the old one may refuse the offset it was given."""
        first, latest = self._bounds()
        if following < first or latest < self._piece.until:
            raise HeadraceError(
                "OFFSETS_LOST",
                f"kafka {self._subscription!r}: the brokers have lost rows of offsets {following} to "
                f"{self._piece.until} of partition {self._piece.partition}: they have {first} to {latest}. Restore "
                "them, or start with a new checkpoint.",
            )
        self._consumer.unassign()
        self._renew()
        self._consumer.assign(self._piece.topic, self._piece.partition, following)

    def _renew(self) -> None:
        _CONSUMERS.pop(self._subscription).close()


def _consumer(subscription: Subscription) -> PartitionConsumer:
    if subscription not in _CONSUMERS:
        _CONSUMERS[subscription] = open_consumer(
            {
                "group.id": "headrace",  # librdkafka requires one; nothing is ever committed to it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "queued.min.messages": FETCHED_AHEAD,
                # By default librdkafka waits a second when enough messages are ready.
                "fetch.queue.backoff.ms": 2,
                "queued.max.messages.kbytes": 128 << 10,
                **subscription.client_options(),
            },
            most=POLLED_AT_ONCE,
        )
    return _CONSUMERS[subscription]
