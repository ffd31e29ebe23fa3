"""Topics of a real Kafka: made so that every client sees them, and read from their beginning to their true end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

PATIENCE_SECONDS = 120
AT_ONCE = 10_000


def create_topic(servers: str, topic: str, partitions: int, **settings: str) -> None:
    """Make a topic, and return when the broker lists it."""
    admin = _admin(servers)
    for _ in _tries():
        try:
            admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)
            break
        except KafkaException as problem:
            # A machine that stood still for two seconds has no broker, as its controller sees it, for a moment.
            if problem.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
    for _ in _tries():
        listed = admin.list_topics(timeout=30).topics.get(topic)
        if listed is not None and len(listed.partitions) == partitions:
            return


def messages(servers: str, topic: str, isolation: str = "read_committed") -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of what a reader finds in a topic whose transactions have all ended."""
    ends = _ends(servers, topic)
    settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": isolation, "log_level": 0}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    found: list[tuple[bytes | None, bytes | None]] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        for _ in _tries():
            for message in consumer.consume(AT_ONCE, timeout=1):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is None:
                    found.append((message.key(), message.value()))
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                # A commit has an answer before its marker is in every partition: until then this is not the end.
                if offset is not None and partition is not None and offset >= ends.get(partition, 0):
                    ends.pop(partition, None)
            if not ends:
                break
    return found


def _ends(servers: str, topic: str) -> dict[int, int]:
    """The end of each partition, open transactions included."""
    admin = _admin(servers)
    partitions = [TopicPartition(topic, number) for number in admin.list_topics(topic, 30).topics[topic].partitions]
    asked = admin.list_offsets(
        {partition: OffsetSpec.latest() for partition in partitions}, isolation_level=IsolationLevel.READ_UNCOMMITTED
    )
    return {partition.partition: asked[partition].result(30).offset for partition in partitions}


def _admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def _tries() -> Iterator[None]:
    """Again and again, until it takes too long."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        yield
        time.sleep(0.05)
    raise AssertionError("waited in vain; is a transaction open?")
