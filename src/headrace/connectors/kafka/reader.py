"""Reads slices of Kafka partitions in tasks, with a consumer that lives as long as its worker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from confluent_kafka import KafkaError, KafkaException

from headrace.connectors.base.conversion import from_bytes
from headrace.connectors.base.decoding import DEAD_SCHEMA, FOUND_CHARACTERS, NOT_UTF8, POSITION, RAW_BYTES, Decoded
from headrace.connectors.base.gate import Arrived
from headrace.connectors.base.lines import Integers, Lines
from headrace.connectors.base.messages import KeyedDecoder, MessageDecoder, Payloads
from headrace.connectors.kafka.librdkafka import Consumer, Messages, Wanted
from headrace.connectors.kafka.positions import Slice, Subscription
from headrace.errors import HeadraceError
from headrace.outages import OutageMarker
from headrace.schemas import MOMENT
from headrace.wheel.task import Task

AT_ONCE = 50_000
"""How many messages are decoded together."""
TAKEN_AT_ONCE = 10_000
"""How many are taken over from librdkafka together at the most."""
FETCHED_AHEAD = 20_000
"""How many lie ready at least: few, because what lies behind the end of a slice was fetched in vain."""
POLL_SECONDS = 1.0
TOLD_AFTER_SECONDS = 5.0
METADATA: Mapping[str, pl.DataType] = {
    "_key": pl.Binary(),
    "_topic": pl.String(),
    "_partition": pl.Int32(),
    "_offset": pl.Int64(),
    "_timestamp": MOMENT,
}
"""Columns that a schema may declare beside those of the value: what Kafka itself knows of a message."""

_CONSUMERS: dict[str, Consumer] = {}


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """Turns slices into rows."""

    subscription: Subscription
    decoder: MessageDecoder
    columns: Mapping[str, pl.DataType]
    """The declared columns in order, those of ``METADATA`` among them."""
    arrival: bool = False
    """Whether anybody asks when each row arrived."""

    def with_arrival(self) -> KafkaReader:
        """The same, telling when each row arrived."""
        return replace(self, arrival=True)

    def read(self, raw: pl.DataFrame, task: Task) -> Iterator[Arrived]:
        """Chunks of rows of each slice."""
        keyed = isinstance(self.decoder, KeyedDecoder)
        wanted = Wanted(keyed or "_key" in self.columns, keyed or self.arrival or "_timestamp" in self.columns)
        for row in raw.drop_nulls("topic").sort("topic", "partition", "first").rows():
            piece = Slice(*row)
            name = f"{piece.topic}/{piece.partition}"
            marker = OutageMarker(
                str(Path(task.side_folder).parent), f"source.{name.replace('/', '.')}", f"kafka topic {name}"
            )
            consuming = _Consuming(self.subscription, piece, marker, wanted)
            lost, number = consuming.lost(), 0
            taken: list[Messages] = []
            for messages in consuming.messages():
                taken.append(messages)
                number += len(messages)
                if number >= AT_ONCE:
                    yield self._arrived(_Taken.of(taken), piece, consuming.unread, lost, task)
                    taken, lost, number = [], 0, 0
            if taken or lost:
                yield self._arrived(_Taken.of(taken), piece, consuming.unread, lost, task)

    def _arrived(self, taken: _Taken, piece: Slice, unread: int, lost: int, task: Task) -> Arrived:
        if isinstance(self.decoder, KeyedDecoder):
            decoded = self.decoder.decode_keyed(taken.values, taken.keys, taken.moments)
        else:
            decoded = self.decoder.decode(taken.values)
        if self.columns.get("_key") == pl.String:
            decoded = _with_text_keys(decoded, taken)
        kept = np.searchsorted(taken.offsets, decoded.rows[POSITION].to_numpy())
        rows = decoded.rows.with_columns(self._metadata(taken, piece, kept))
        rows = rows.select(*self.columns, POSITION)
        name = f"{piece.topic}/{piece.partition}"
        arrived = pl.Series(taken.moments[kept]) if self.arrival else task.record.clock
        return Arrived(replace(decoded, rows=rows), name, arrived, name, unread, lost)

    def _metadata(self, taken: _Taken, piece: Slice, kept: npt.NDArray[np.intp]) -> list[pl.Series | pl.Expr]:
        found: list[pl.Series | pl.Expr] = []
        for column in self.columns:
            match column:
                case "_key":
                    keys = pl.Series(column, taken.keys, dtype=pl.Binary)
                    found.append(keys.gather(kept).cast(self.columns[column]))
                case "_topic":
                    found.append(pl.lit(piece.topic).alias(column))
                case "_partition":
                    found.append(pl.lit(piece.partition, pl.Int32).alias(column))
                case "_offset":
                    found.append(pl.Series(column, taken.offsets[kept]))
                case "_timestamp":
                    found.append(pl.Series(column, taken.moments[kept]).cast(MOMENT))
        return found


@dataclass(frozen=True, slots=True)
class _Taken:
    """What is needed of the messages of one partition."""

    values: Payloads
    offsets: Integers
    moments: Integers
    """When each was written, in microseconds."""
    keys: Sequence[bytes | None]

    @classmethod
    def of(cls, taken: Sequence[Messages]) -> _Taken:
        """Messages that were taken over one after the other."""
        before = np.cumsum([0, *(len(each.text) for each in taken)])
        offsets = _joined([each.offsets for each in taken])
        present = _joined([each.present for each in taken]).astype(np.bool_)
        lines = Lines(
            _joined([each.text for each in taken]).tobytes(),
            _joined([each.starts + place for each, place in zip(taken, before, strict=False)]),
            _joined([each.ends + place for each, place in zip(taken, before, strict=False)]),
            offsets[present],
            together=True,
        )
        return cls(
            Payloads(lines, offsets[~present]),
            offsets,
            _joined([each.moments for each in taken]) * 1000,
            [key for each in taken for key in each.keys],
        )


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _with_text_keys(decoded: Decoded, taken: _Taken) -> Decoded:
    """Without the rows whose key is no text: their messages become dead letters."""
    keys = pl.Series(taken.keys, dtype=pl.Binary)
    strange = taken.offsets[(from_bytes(keys).is_null() & keys.is_not_null()).to_numpy()]
    refused = decoded.rows[POSITION].is_in(strange)
    if not refused.any():
        return decoded
    dead = []
    offsets = decoded.rows[POSITION].filter(refused).unique(maintain_order=True)
    raw = taken.values.lines.raw_at(offsets, RAW_BYTES).to_list()
    for offset, value in zip(offsets, raw, strict=True):
        key = taken.keys[int(np.searchsorted(taken.offsets, offset))] or b""
        detail = f"the key holds bytes that are not UTF-8, in hex {key[: FOUND_CHARACTERS // 2].hex()}"
        dead.append((offset, NOT_UTF8, detail, value))
    letters = pl.DataFrame(dead, schema=DEAD_SCHEMA, orient="row")
    return replace(decoded, rows=decoded.rows.filter(~refused), dead=pl.concat([decoded.dead, letters]))


class _Consuming:
    """One slice on its way from the broker; waits as long as the broker is away."""

    def __init__(self, subscription: Subscription, piece: Slice, marker: OutageMarker, wanted: Wanted) -> None:
        self._subscription = subscription
        self._piece = piece
        self._outage = marker
        self._wanted = wanted
        self._consumer = _consumer(subscription)
        self._first = piece.first
        self.unread = 0

    def lost(self) -> int:
        """How many of the slice's rows are gone; a loud error unless the author accepts that."""
        first, latest = self._bounds()
        self.unread = max(0, latest - self._piece.until)
        gone = max(0, min(first, self._piece.until) - self._piece.first)
        if gone and self._subscription.on_lost == "fail":
            raise HeadraceError(
                "OFFSETS_LOST",
                f"kafka {self._subscription!r}: {gone} rows from offset {self._piece.first} of partition "
                f"{self._piece.partition} on are gone, the topic now begins at {first}. Restore them, start with a new "
                "checkpoint, or accept the loss with on_lost='count'.",
            )
        self._first = self._piece.first + gone
        return gone

    def _bounds(self) -> tuple[int, int]:
        while True:
            try:
                bounds = self._consumer.bounds(self._piece.topic, self._piece.partition, POLL_SECONDS * 5)
            except KafkaException as problem:
                self._outage.begin(problem.args[0].str())
                # Some answers come at once, and a consumer may go on giving the one it has heard first.
                time.sleep(POLL_SECONDS)
                self._renew()
            else:
                self._outage.end()
                return bounds

    def messages(self) -> Iterator[Messages]:
        """The slice's messages in order, many at a time."""
        following = self._first
        self._assign(following)
        heard = time.monotonic()
        try:
            while following < self._piece.until:
                messages, ended, broken = self._poll(following)
                if len(messages):
                    following = int(messages.offsets[-1]) + 1
                    yield messages
                if ended:
                    return
                if broken is not None:
                    self._outage.begin(broken)
                    self._start_anew(following)
                if len(messages):
                    heard = time.monotonic()
                    self._outage.end()
                elif time.monotonic() - heard > TOLD_AFTER_SECONDS:
                    self._outage.begin("no answer")
        finally:
            self._consumer.unassign()
            self._outage.end()

    def _poll(self, following: int) -> tuple[Messages, bool, str | None]:
        """Messages from ``following`` on, whether the slice has ended, and what makes the consumer useless."""
        span = (following, self._piece.until)
        taken = self._consumer.take(span[1] - span[0], POLL_SECONDS, span, self._wanted)
        # Offsets may have no message: where a transaction ended, or where a key has a newer one.
        ended, broken = taken.reached >= span[1], None
        for trouble in taken.troubles:
            if trouble.code == KafkaError._PARTITION_EOF:
                # Behind the last row there may be marks of transactions, which are never handed over.
                ended |= trouble.offset >= span[1]
            elif trouble.code in (KafkaError._AUTO_OFFSET_RESET, KafkaError._FATAL):
                broken = trouble.text
        return taken.messages, ended, broken

    def _start_anew(self, following: int) -> None:
        """With a new consumer: after an outage the old one may not believe in the position it was given."""
        first, latest = self._bounds()
        if following < first or latest < self._piece.until:
            raise HeadraceError(
                "OFFSETS_LOST",
                f"kafka {self._subscription!r}: offsets {following} to {self._piece.until} of partition "
                f"{self._piece.partition} were there when the batch was planned, now there are {first} to {latest}. "
                "The brokers have lost rows. Restore them, or start with a new checkpoint.",
            )
        self._consumer.unassign()
        self._renew()
        self._assign(following)

    def _renew(self) -> None:
        _forget(self._subscription)
        self._consumer = _consumer(self._subscription)

    def _assign(self, offset: int) -> None:
        self._consumer.assign(self._piece.topic, self._piece.partition, offset)


def _consumer(subscription: Subscription) -> Consumer:
    """This worker's consumer for a cluster."""
    key = subscription.to_json()
    if key not in _CONSUMERS:
        _CONSUMERS[key] = Consumer(
            {
                "group.id": "headrace",  # librdkafka asks for one; nothing is ever committed under it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "queued.min.messages": FETCHED_AHEAD,
                # By default nothing is fetched for a second when enough lies ready.
                "fetch.queue.backoff.ms": 2,
                "queued.max.messages.kbytes": 128 << 10,
                **subscription.client_options(),
            },
            most=TAKEN_AT_ONCE,
        )
    return _CONSUMERS[key]


def _forget(subscription: Subscription) -> None:
    _CONSUMERS.pop(subscription.to_json()).close()
