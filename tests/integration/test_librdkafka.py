"""Messages taken over from a real broker by the thousand are those that were sent, whatever they hold."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.connectors.base.messages import Payloads
from headrace.connectors.kafka.consumer import ConfluentConsumer, PartitionConsumer, Wanted
from headrace.connectors.kafka.librdkafka import LibrdkafkaConsumer
from headrace.services.service import Service
from tests.topics import create_topic

Sent = tuple[bytes | None, bytes | None]
EVERYTHING = Wanted(keys=True, times=True)
SETTINGS = {
    "group.id": "test",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 50,
}


@pytest.fixture(params=[LibrdkafkaConsumer, ConfluentConsumer])
def consumer(kafka: Service, request: pytest.FixtureRequest) -> Iterator[PartitionConsumer]:
    """One of each kind, which polls 700 messages at the most: the same rows come out."""
    made: PartitionConsumer = request.param({"bootstrap.servers": kafka.address, **SETTINGS}, most=700)
    yield made
    made.close()


@pytest.fixture
def topic(kafka: Service) -> str:
    """A topic of its own."""
    name = f"t{uuid.uuid4().hex[:8]}"
    create_topic(kafka.address, name, 1)
    return name


def _sent(kafka: Service, topic: str, rows: list[Sent], **settings: object) -> None:
    producer = Producer({"bootstrap.servers": kafka.address, "enable.idempotence": True, **settings})
    transactional = "transactional.id" in settings
    if transactional:
        producer.init_transactions()
        producer.begin_transaction()
    for number, (key, value) in enumerate(rows):
        headers: list[tuple[str, str | bytes | None]] | None = (
            [("h", b"x" * (number % 400))] if number % 5 == 0 else None
        )
        producer.produce(topic, value, key=key, headers=headers, timestamp=1_000_000 + number)
        producer.poll(0)
    if transactional:
        producer.commit_transaction()
    assert producer.flush(30) == 0


def _read(consumer: PartitionConsumer, topic: str, span: tuple[int, int]) -> Payloads:
    """All messages of a span of offsets."""
    consumer.assign(topic, 0, span[0])
    found = []
    while True:
        polled = consumer.poll(span[1], 5.0, span, EVERYTHING)
        found.append(polled.payloads)
        if polled.reached >= span[1]:
            consumer.unassign()
            return Payloads.concat(found)


def _rows(found: Payloads) -> list[Sent]:
    assert found.keys is not None
    return list(zip(found.keys, found.raw(), strict=True))


def _anything(seed: int, rows: int) -> list[Sent]:
    chosen = random.Random(seed)
    lengths = (0, 1, 7, 200, 5_000)
    some = [None, *(chosen.randbytes(length) for length in lengths)]
    return [(chosen.choice(some), chosen.choice(some)) for _ in range(rows)]


@pytest.mark.parametrize("compression", ["none", "lz4", "gzip"])
def test_keys_values_offsets_and_times_are_those_that_were_sent(
    kafka: Service, topic: str, consumer: PartitionConsumer, compression: str
) -> None:
    rows = _anything(7, 3_000)
    _sent(kafka, topic, rows, **{"compression.type": compression, "linger.ms": 20})
    found = _read(consumer, topic, (0, 3_000))
    assert _rows(found) == rows
    assert found.positions.tolist() == list(range(3_000))
    assert found.times is not None
    assert (found.times // 1000).tolist() == list(range(1_000_000, 1_003_000))


def test_values_are_lines_with_nothing_but_spaces_between_them(
    kafka: Service, topic: str, consumer: PartitionConsumer
) -> None:
    rows: list[Sent] = [(b"key %d" % number, b'{"n":%d}' % number) for number in range(1_000)]
    _sent(kafka, topic, rows)
    text = _read(consumer, topic, (0, 1_000)).lines.data
    assert text.endswith(b"\n")
    assert [line.rstrip(b" ") for line in text.splitlines()] == [value for _, value in rows]


def test_of_a_span_only_its_messages_come_and_marks_of_transactions_end_it(
    kafka: Service, topic: str, consumer: PartitionConsumer
) -> None:
    rows = _anything(8, 100)
    _sent(kafka, topic, rows, **{"transactional.id": topic})
    # A commit has an answer before its mark is in the partition.
    until = time.monotonic() + 30
    while consumer.bounds(topic, 0, 5.0) != (0, 101):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert _rows(_read(consumer, topic, (20, 40))) == rows[20:40]
    assert _rows(_read(consumer, topic, (90, 101))) == rows[90:]


def test_what_was_not_asked_for_is_not_there(kafka: Service, topic: str, consumer: PartitionConsumer) -> None:
    _sent(kafka, topic, [(b"key", b"value")])
    consumer.assign(topic, 0, 0)
    payloads = consumer.poll(1, 5.0, (0, 1), Wanted(keys=False, times=False)).payloads
    assert (len(payloads), payloads.keys, payloads.times) == (1, None, None)


def test_an_offset_that_is_gone_is_told_with_its_code(topic: str, consumer: PartitionConsumer) -> None:
    consumer.assign(topic, 0, 50)
    polled = consumer.poll(1, 10.0, (50, 60), EVERYTHING)
    assert polled.failure is not None
    assert polled.failure.code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in polled.failure.str().lower()
    assert len(polled.payloads) == 0


def test_a_topic_that_is_not_there_has_no_bounds(kafka: Service, consumer: PartitionConsumer) -> None:
    with pytest.raises(KafkaException, match=r"UNKNOWN_(TOPIC|PARTITION)"):
        consumer.bounds(f"no{uuid.uuid4().hex}", 0, 5.0)


@pytest.mark.parametrize("kind", [LibrdkafkaConsumer, ConfluentConsumer])
def test_a_setting_that_is_not_known_is_refused_by_its_name(kind: type[LibrdkafkaConsumer | ConfluentConsumer]) -> None:
    with pytest.raises(KafkaException, match=r"no\.such\.setting"):
        kind({"group.id": "test", "no.such.setting": 1}, most=1)
