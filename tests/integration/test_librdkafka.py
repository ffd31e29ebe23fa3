"""Messages taken over from a real broker by the thousand are those that were sent, whatever they hold."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.connectors.kafka.librdkafka import Consumer, Messages, Wanted
from headrace.services.service import Service
from tests.topics import create_topic

Sent = tuple[bytes | None, bytes | None]
EVERYTHING = Wanted(keys=True, moments=True)
SETTINGS = {
    "group.id": "test",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 50,
}


@pytest.fixture
def consumer(kafka: Service) -> Iterator[Consumer]:
    """One that takes 700 messages at the most."""
    made = Consumer({"bootstrap.servers": kafka.address, **SETTINGS}, most=700)
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
        headers = [("h", b"x" * (number % 400))] if number % 5 == 0 else None
        producer.produce(topic, value, key=key, headers=headers, timestamp=1_000_000 + number)
        producer.poll(0)
    if transactional:
        producer.commit_transaction()
    assert producer.flush(30) == 0


def _read(consumer: Consumer, topic: str, span: tuple[int, int]) -> list[Messages]:
    """All messages of a span of offsets."""
    consumer.assign(topic, 0, span[0])
    found = []
    while True:
        taken = consumer.take(span[1], 5.0, span, EVERYTHING)
        found.append(taken.messages)
        ends = [trouble.offset for trouble in taken.troubles if trouble.code == KafkaError._PARTITION_EOF]
        if taken.reached >= span[1] or ends:
            consumer.unassign()
            return found


def _rows(found: list[Messages]) -> list[Sent]:
    rows: list[Sent] = []
    for messages in found:
        text = messages.text.tobytes()
        spans = zip(messages.starts.tolist(), messages.ends.tolist(), strict=True)
        values = iter([text[start:end] for start, end in spans])
        rows.extend(
            (key, next(values) if there else None)
            for key, there in zip(messages.keys, messages.present.tolist(), strict=True)
        )
        assert next(values, None) is None
    return rows


def _anything(seed: int, rows: int) -> list[Sent]:
    chosen = random.Random(seed)
    lengths = (0, 1, 7, 200, 5_000)
    some = [None, *(chosen.randbytes(length) for length in lengths)]
    return [(chosen.choice(some), chosen.choice(some)) for _ in range(rows)]


@pytest.mark.parametrize("compression", ["none", "lz4", "gzip"])
def test_keys_values_offsets_and_times_are_those_that_were_sent(
    kafka: Service, topic: str, consumer: Consumer, compression: str
) -> None:
    rows = _anything(7, 3_000)
    _sent(kafka, topic, rows, **{"compression.type": compression, "linger.ms": 20})
    found = _read(consumer, topic, (0, 3_000))
    assert _rows(found) == rows
    assert [offset for each in found for offset in each.offsets.tolist()] == list(range(3_000))
    assert [moment for each in found for moment in each.moments.tolist()] == list(range(1_000_000, 1_003_000))


def test_values_are_lines_with_nothing_but_spaces_between_them(kafka: Service, topic: str, consumer: Consumer) -> None:
    rows: list[Sent] = [(b"key %d" % number, b'{"n":%d}' % number) for number in range(1_000)]
    _sent(kafka, topic, rows)
    text = b"".join(each.text.tobytes() for each in _read(consumer, topic, (0, 1_000)))
    assert text.endswith(b"\n")
    assert [line.rstrip(b" ") for line in text.splitlines()] == [value for _, value in rows]


def test_of_a_span_only_its_messages_come_and_marks_of_transactions_end_it(
    kafka: Service, topic: str, consumer: Consumer
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


def test_what_was_not_asked_for_is_not_there(kafka: Service, topic: str, consumer: Consumer) -> None:
    _sent(kafka, topic, [(b"key", b"value")])
    consumer.assign(topic, 0, 0)
    taken = consumer.take(1, 5.0, (0, 1), Wanted(keys=False, moments=False))
    assert (len(taken.messages), taken.messages.keys, taken.messages.moments.tolist()) == (1, [], [])


def test_an_offset_that_is_gone_is_told_with_its_code(topic: str, consumer: Consumer) -> None:
    consumer.assign(topic, 0, 50)
    taken = consumer.take(1, 10.0, (50, 60), EVERYTHING)
    assert [trouble.code for trouble in taken.troubles] == [KafkaError._AUTO_OFFSET_RESET]
    assert "out of range" in taken.troubles[0].text.lower()
    assert len(taken.messages) == 0


def test_a_topic_that_is_not_there_has_no_bounds(kafka: Service, consumer: Consumer) -> None:
    with pytest.raises(KafkaException, match=r"UNKNOWN_(TOPIC|PARTITION)"):
        consumer.bounds(f"no{uuid.uuid4().hex}", 0, 5.0)


def test_a_setting_that_is_not_known_is_refused_by_its_name() -> None:
    with pytest.raises(KafkaException, match=r"no\.such\.setting"):
        Consumer({"no.such.setting": 1}, most=1)
