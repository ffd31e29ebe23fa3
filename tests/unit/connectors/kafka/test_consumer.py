"""Which consumer reads, and what the plain one makes of confluent-kafka's messages."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from headrace.connectors.kafka import consumer as kafka_consumer
from headrace.connectors.kafka import librdkafka
from headrace.connectors.kafka.consumer import ConfluentConsumer, Wanted, open_consumer
from headrace.connectors.kafka.librdkafka import LibrdkafkaConsumer

OPTIONS = {"bootstrap.servers": "nobody:1", "group.id": "test", "log_level": 0}
EVERYTHING = Wanted(keys=True, times=True)


@dataclass
class Sent:
    """A message as confluent-kafka hands it over."""

    at: int
    payload: bytes | None = None
    code: int | None = None

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.payload

    def key(self) -> bytes | None:
        return b"k%d" % self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 5_000 + self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


class Client:
    """A client of confluent-kafka with messages that come two at a time, the first only after a wait."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.waiting = [Sent(3, b"a"), Sent(4), Sent(6, b"b"), Sent(7, b"c"), Sent(9, code=KafkaError._PARTITION_EOF)]
        self.waited = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        assert [(each.topic, each.partition, each.offset) for each in partitions] == [("clicks", 2, 4)]

    def consume(self, most: int, seconds: float) -> list[Sent]:
        self.waited = self.waited or seconds > 0
        count = min(most, 2) if self.waited else 0
        found, self.waiting = self.waiting[:count], self.waiting[count:]
        return found


def test_librdkafka_is_called_where_its_layout_is_known() -> None:
    consumer = open_consumer(OPTIONS, most=1)
    assert isinstance(consumer, LibrdkafkaConsumer)
    consumer.close()


def test_without_the_shared_library_confluent_kafka_reads(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "headrace.connectors.kafka.librdkafka", None)
    assert isinstance(open_consumer(OPTIONS, most=1), ConfluentConsumer)
    assert "through confluent-kafka" in caplog.text


@pytest.mark.parametrize("version", [0x00_0B_00_FF, 0x03_00_00_FF])
def test_with_an_unknown_layout_confluent_kafka_reads(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(librdkafka, "_version", lambda: version)
    assert isinstance(open_consumer(OPTIONS, most=1), ConfluentConsumer)


def test_messages_of_a_span_come_as_payloads_and_the_end_of_the_partition_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_consumer, "Consumer", Client)
    consumer = ConfluentConsumer(OPTIONS, most=100)
    consumer.assign("clicks", 2, 4)
    polled = [consumer.poll(100, 1.0, (4, 7), EVERYTHING) for _ in range(3)]
    assert [each.payloads.raw() for each in polled] == [[None, b"b"], [], []]
    assert [each.reached for each in polled] == [7, 9, 0]
    first = polled[0].payloads
    assert first.positions.tolist() == [4, 6]
    assert first.keys == [b"k4", b"k6"]
    assert first.times is not None
    assert first.times.tolist() == [5_004_000, 5_006_000]


def test_only_errors_that_librdkafka_does_not_get_over_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_consumer, "Consumer", Client)
    consumer = ConfluentConsumer(OPTIONS, most=100)
    consumer._client.waiting = [Sent(0, code=KafkaError._TRANSPORT)]  # type: ignore[attr-defined]
    assert consumer.poll(100, 1.0, (0, 9), EVERYTHING).failure is None
    consumer._client.waiting = [Sent(0, code=KafkaError._AUTO_OFFSET_RESET)]  # type: ignore[attr-defined]
    failure = consumer.poll(100, 1.0, (0, 9), EVERYTHING).failure
    assert failure is not None
    assert failure.code() == KafkaError._AUTO_OFFSET_RESET
