"""Consumers that read one partition at a time: what they give back, which one is used, and the plain one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.connectors.base.messages import Payloads

_FAILURES = (KafkaError._AUTO_OFFSET_RESET, KafkaError._FATAL)
"""Errors after which a consumer cannot go on; librdkafka recovers from the others by itself."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted besides the values: each costs a call per message."""

    keys: bool
    times: bool


@dataclass(frozen=True, slots=True)
class Polled:
    """Messages that came together."""

    payloads: Payloads
    reached: int
    """The offset after the last message, wanted or not, or the end of the partition if that came."""
    failure: KafkaError | None
    """Why this consumer cannot go on."""

    @classmethod
    def of(cls, payloads: Payloads, reached: int, errors: Iterable[tuple[KafkaError, int]]) -> Polled:
        """Messages, with the errors and their offsets that came between them."""
        failure = None
        for error, offset in errors:
            if error.code() == KafkaError._PARTITION_EOF:
                reached = max(reached, offset)
            elif error.code() in _FAILURES:
                failure = error
        return cls(payloads, reached, failure)


class PartitionConsumer(Protocol):
    """Reads one partition at a time, from an offset on; belongs to no group."""

    def bounds(self, topic: str, partition: int, seconds: float) -> tuple[int, int]:
        """The first offset of a partition and the one after its last; KafkaException if no broker answers."""

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Read this partition from this offset on, and nothing else."""

    def unassign(self) -> None:
        """Read nothing."""

    def poll(self, most: int, seconds: float, span: tuple[int, int], wanted: Wanted) -> Polled:
        """What is there, or the first that comes within ``seconds``; only messages with offsets in ``span``."""

    def close(self) -> None:
        """Disconnect."""


def open_consumer(options: Mapping[str, Any], *, most: int) -> PartitionConsumer:
    """A consumer that polls at most ``most`` messages at once; the plain one where librdkafka cannot be called."""
    try:
        from headrace.connectors.kafka.librdkafka import LibrdkafkaConsumer, check_layout

        check_layout()
    except (ImportError, OSError, AttributeError) as problem:
        logging.getLogger(__name__).warning("Kafka is read through confluent-kafka, which is slower: %s", problem)
        return ConfluentConsumer(options, most=most)
    return LibrdkafkaConsumer(options, most=most)


class ConfluentConsumer:
    """A consumer through confluent-kafka, which makes a Python object of every message."""

    def __init__(self, options: Mapping[str, Any], *, most: int) -> None:
        self._client = Consumer(dict(options))
        self._most = most

    def bounds(self, topic: str, partition: int, seconds: float) -> tuple[int, int]:
        found: tuple[int, int] | None = self._client.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=seconds
        )
        if found is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return found

    def assign(self, topic: str, partition: int, offset: int) -> None:
        self._client.assign([TopicPartition(topic, partition, offset)])

    def unassign(self) -> None:
        self._client.unassign()

    def poll(self, most: int, seconds: float, span: tuple[int, int], wanted: Wanted) -> Polled:
        found = [(message, message.error(), message.offset() or 0) for message in self._consume(most, seconds)]
        read = [(message, offset) for message, error, offset in found if error is None]
        good = [message for message, offset in read if span[0] <= offset < span[1]]
        payloads = Payloads.of(
            [message.value() for message in good],
            np.array([message.offset() for message in good], np.int64),
            [message.key() for message in good] if wanted.keys else None,
            np.array([message.timestamp()[1] for message in good], np.int64) * 1000 if wanted.times else None,
        )
        errors = [(error, offset) for _, error, offset in found if error is not None]
        return Polled.of(payloads, read[-1][1] + 1 if read else 0, errors)

    def _consume(self, most: int, seconds: float) -> list[Message]:
        most = min(most, self._most)
        # With a time-out, consume() would wait until it has as many as wanted, and they may never come.
        found = self._client.consume(most, 0)
        if not found:
            found = self._client.consume(1, seconds)
            if found and most > 1:
                found += self._client.consume(most - 1, 0)
        return found

    def close(self) -> None:
        self._client.close()
