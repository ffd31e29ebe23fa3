"""Slices of a partition, read with a consumer that gives what it is asked for and notes how much that was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from confluent_kafka import KafkaError, KafkaException

import headrace as hr
from headrace.connectors.base.decoding import POSITION, Columns, Decoded
from headrace.connectors.base.messages import JsonMessages, Payloads, message_decoder
from headrace.connectors.base.source import Gate
from headrace.connectors.kafka import reader as kafka_reader
from headrace.connectors.kafka.consumer import Polled, Wanted
from headrace.connectors.kafka.positions import Subscription
from headrace.connectors.kafka.reader import KafkaReader
from headrace.event_time.record import BatchRecord
from headrace.wheel.task import Task
from tests.tasks import state_in_memory

TASK = Task(BatchRecord(0, 7, {}, {}, {}, drain=False), "flow", 0, lambda *_: None, state_in_memory())
SUBSCRIPTION = Subscription("nobody:1", ("clicks",), False, "earliest", "fail")
LOSSY = replace(SUBSCRIPTION, on_lost="count")


class Consumer:
    """A partition of which some offsets hold no message, as where a transaction ended."""

    def __init__(self, offsets: list[int], end: int, at_once: int = 100) -> None:
        self._offsets = offsets
        self._end = end
        self._at_once = at_once
        self._next = 0
        self.keys: dict[int, bytes | None] = {}

    def bounds(self, topic: str, partition: int, seconds: float) -> tuple[int, int]:
        return 0, self._end

    def assign(self, topic: str, partition: int, offset: int) -> None:
        self._next = offset

    def unassign(self) -> None:
        pass

    def poll(self, most: int, seconds: float, span: tuple[int, int], wanted: Wanted) -> Polled:
        found = [offset for offset in self._offsets if offset >= self._next][: min(most, self._at_once)]
        assert found, "nothing more would come, and the reader would wait for ever"
        self._next = found[-1] + 1
        inside = [offset for offset in found if span[0] <= offset < span[1]]
        return Polled(_payloads(inside, [self.keys.get(offset, b"k") for offset in inside], wanted), self._next, None)


def _payloads(offsets: list[int], keys: list[bytes | None], wanted: Wanted) -> Payloads:
    positions = np.array(offsets, np.int64)
    times = 1000 * (1000 + positions) if wanted.times else None
    return Payloads.of([b'{"n":%d}' % offset for offset in offsets], positions, keys if wanted.keys else None, times)


@pytest.fixture
def consumers() -> Iterator[dict[Subscription, Consumer]]:
    held: dict[Subscription, Consumer] = kafka_reader._CONSUMERS  # type: ignore[assignment]
    yield held
    held.clear()


def _read(
    consumers: dict[Subscription, Consumer], consumer: Consumer, first: int, until: int, **columns: pl.DataType
) -> list[Decoded]:
    consumers[SUBSCRIPTION] = consumer
    return list(reader_of(SUBSCRIPTION, **columns).read(_slices(first, until), TASK))


def reader_of(subscription: Subscription, **columns: pl.DataType) -> KafkaReader:
    decoder = message_decoder("json", Columns({"n": pl.Int64()}), avro_schema=None)
    return KafkaReader(subscription, decoder, {"n": pl.Int64(), **columns}, arrival=True)


def _slices(first: int, until: int) -> list[tuple[str, int, int, int]]:
    return [("clicks", 3, first, until)]


def test_a_slice_is_whole_in_how_many_pieces_it_may_come(consumers: dict[Subscription, Consumer]) -> None:
    (arrived,) = _read(consumers, Consumer(list(range(10)), end=10, at_once=4), 0, 10)
    assert arrived.rows[POSITION].to_list() == list(range(10))


def test_messages_behind_the_slice_are_left(consumers: dict[Subscription, Consumer]) -> None:
    (arrived,) = _read(consumers, Consumer([0, 1, 2, 4, 5, 6], end=7), 1, 4)
    assert arrived.rows["n"].to_list() == [1, 2]


def test_many_messages_come_in_chunks_of_whole_takes(
    consumers: dict[Subscription, Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_reader, "CHUNK_MESSAGES", 3)
    chunks = _read(consumers, Consumer(list(range(7)), end=7, at_once=2), 0, 7)
    assert [chunk.rows["n"].to_list() for chunk in chunks] == [[0, 1, 2, 3], [4, 5, 6]]


def test_what_kafka_knows_of_a_message_is_told_where_it_is_declared(consumers: dict[Subscription, Consumer]) -> None:
    metadata = {name: kafka_reader.METADATA[name] for name in ("_key", "_topic", "_partition", "_offset", "_timestamp")}
    (arrived,) = _read(consumers, Consumer([5], end=6), 5, 6, **metadata)
    moment = datetime(1970, 1, 1, 0, 0, 1, 5000, tzinfo=UTC)
    assert arrived.rows.rows() == [(5, b"k", "clicks", 3, 5, moment, 5)]
    assert arrived.arrived.to_list() == [1_005_000]  # type: ignore[union-attr]


def test_when_rows_arrived_is_fetched_only_where_it_is_asked_for(consumers: dict[Subscription, Consumer]) -> None:
    asked: list[Wanted] = []

    class Noting(Consumer):
        def poll(self, most: int, seconds: float, span: tuple[int, int], wanted: Wanted) -> Polled:
            asked.append(wanted)
            return super().poll(most, seconds, span, wanted)

    consumers[SUBSCRIPTION] = Noting([5], end=6)
    decoder = message_decoder("json", Columns({"n": pl.Int64()}), avro_schema=None)
    reader = KafkaReader(SUBSCRIPTION, decoder, {"n": pl.Int64()})
    gate = Gate("clicks", reader, None, ingestion_reader=replace(reader, arrival=True))
    (arrived,) = gate.timed(hr.event_time("n")).reader.read(_slices(5, 6), TASK)
    assert arrived.arrived == TASK.record.clock
    (arrived,) = gate.timed(hr.ingestion_time()).reader.read(_slices(5, 6), TASK)
    assert arrived.arrived.to_list() == [1_005_000]  # type: ignore[union-attr]
    assert asked == [Wanted(keys=False, times=False), Wanted(keys=False, times=True)]


def test_a_key_that_is_no_text_makes_its_message_alone_a_dead_letter(consumers: dict[Subscription, Consumer]) -> None:
    consumer = Consumer([4, 5, 6, 8], end=9)
    consumer.keys = {4: "ä".encode(), 5: b"\xff\x00", 6: None}
    (arrived,) = _read(consumers, consumer, 4, 9, _key=pl.String())
    assert arrived.rows.select("n", "_key").rows() == [(4, "ä"), (6, None), (8, "k")]
    assert arrived.arrived.to_list() == [1_004_000, 1_006_000, 1_008_000]  # type: ignore[union-attr]
    assert arrived.dead.rows() == [(5, "NOT_UTF8", "the key holds bytes that are not UTF-8, in hex ff00", b'{"n":5}')]


def test_a_message_that_its_decoder_fails_on_is_alone_a_dead_letter_and_lost_ones_count_once(
    consumers: dict[Subscription, Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shortened(Consumer):
        def bounds(self, topic: str, partition: int, seconds: float) -> tuple[int, int]:
            return 4, self._end

    def decode(messages: JsonMessages, payloads: Payloads) -> Decoded:
        if b'{"n":6}' in payloads.raw():
            raise pl.exceptions.PanicException("it is poison")
        return decoded(messages, payloads)

    decoded = JsonMessages.decode
    monkeypatch.setattr(JsonMessages, "decode", decode)
    consumers[LOSSY] = Shortened([4, 5, 6, 8], end=9)
    chunks = list(reader_of(LOSSY, _key=pl.Binary(), _offset=pl.Int64()).read(_slices(1, 9), TASK))
    assert [row for chunk in chunks for row in chunk.rows.rows()] == [(n, b"k", n, n) for n in (4, 5, 8)]
    assert [moment for chunk in chunks for moment in chunk.arrived] == [1_004_000, 1_005_000, 1_008_000]  # type: ignore[union-attr]
    assert [row for chunk in chunks for row in chunk.dead.rows()] == [(6, "UNDECODABLE", "it is poison", b'{"n":6}')]
    assert sum(chunk.lost for chunk in chunks) == 3


class Refusing(Consumer):
    """Says at once that it knows nothing of the partition, as often as it is asked."""

    def bounds(self, topic: str, partition: int, seconds: float) -> tuple[int, int]:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))

    def close(self) -> None:
        pass


def test_a_consumer_that_refuses_at_once_is_asked_with_pauses_and_built_anew(
    consumers: dict[Subscription, Consumer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    rests: list[float] = []
    monkeypatch.setattr(kafka_reader, "time", SimpleNamespace(sleep=rests.append, monotonic=time.monotonic))
    built = iter([Refusing([], end=0), Consumer([0, 1], end=2)])
    monkeypatch.setattr(kafka_reader, "open_consumer", lambda settings, most: next(built))
    (arrived,) = _read(consumers, Refusing([], end=0), 0, 2)
    assert arrived.rows["n"].to_list() == [0, 1]
    assert rests == [kafka_reader.POLL_SECONDS] * 2
