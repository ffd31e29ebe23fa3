"""Kafka clients: calls with a time limit, what their errors mean, and clients that are dropped safely."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from headrace.connectors.base.sink import Unreachable
from headrace.errors import HeadraceError
from headrace.secrets import Secret, revealed_options

PATIENCE = 6.0
"""Seconds without an answer or an acknowledged message after which a broker counts as unreachable."""
LINGER = 2.0
QUEUED_MESSAGES = 200_000
Message = tuple[bytes | None, bytes | None]
"""Value and key."""
Answer = TypeVar("Answer")

_SETTINGS: dict[str, Any] = {
    "linger.ms": 5,
    # Every transaction pays it once, because the first request after a commit must be retried; the default is 100.
    "retry.backoff.ms": 5,
    "compression.type": "lz4",
    # The Java clients' default, so that a key has one partition whichever client writes it.
    "partitioner": "murmur2_random",
    "transaction.timeout.ms": 300_000,
}
_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    KafkaError.POLICY_VIOLATION,
}
"""Errors that stay until somebody corrects the options or the broker."""
_ABSENT = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


def client_settings(servers: str, options: Iterable[tuple[str, str | Secret]]) -> dict[str, Any]:
    """The settings of any client of a cluster: its servers, no log, and the user's options with secrets revealed."""
    # Its log would fill a worker's log while a broker is down; errors are raised anyway.
    return {"bootstrap.servers": servers, "log_level": 0, **revealed_options(options)}


def refusals_into(errors: list[KafkaError]) -> Callable[[KafkaError], None]:
    """An error callback: a wrong password looks like a time-out, and only this call tells the reason."""

    def note(error: KafkaError) -> None:
        if error.code() in _REFUSED:
            errors.append(error)

    return note


def unknown_topic(servers: str, topic: str, known: Iterable[str]) -> HeadraceError:
    """The error of a topic that does not exist."""
    names = ", ".join(sorted(name for name in known if not name.startswith("__"))) or "none"
    return HeadraceError(
        "TOPIC_UNKNOWN",
        f"kafka at {servers} has no topic {topic!r}. Existing topics: {names}. Create it, or correct the name.",
    )


class Fenced(Unreachable):
    """Another producer has the same id, or the broker aborted the transaction; the mark decides what to do."""


class MessagesRefused(Exception):
    """The broker takes no message of a transaction, because it never takes some of these."""

    def __init__(self, messages: Mapping[Message, str]) -> None:
        self.messages = messages


@dataclass(frozen=True, slots=True)
class Reports:
    """What a producer learns of messages that failed."""

    errors: list[KafkaError] = field(default_factory=list)
    """Why the broker refuses the client, or messages that it may take later."""
    refused: dict[Message, str] = field(default_factory=dict)
    """Messages that the broker never takes, with the reason. Of one in a request librdkafka may name all in it."""
    beside: list[Message] = field(default_factory=list)
    """Messages that failed because they were sent with one of those."""

    def note(self, error: KafkaError, sent: Any) -> None:
        """Take in the report of a message."""
        message = sent.value(), sent.key()
        match error.code():
            case KafkaError.INVALID_RECORD:
                self.refused[message] = f"{error.str()} ({error.name()})"
            case KafkaError._INVALID_DIFFERENT_RECORD:
                self.beside.append(message)
            case _:
                self.errors.append(error)

    @property
    def any(self) -> bool:
        return bool(self.errors or self.refused or self.beside)

    def clear(self) -> None:
        for each in (self.errors, self.refused, self.beside):
            each.clear()


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster's bootstrap servers and the client options."""

    servers: str
    options: tuple[tuple[str, str | Secret], ...] = field(repr=False)
    max_bytes: int

    def place(self, topic: str) -> str:
        return f"kafka topic {topic!r} at {self.servers}"

    def settings(self, ours: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of a client; the user's options override the defaults, but not ``ours``."""
        return {
            "logger": logging.Logger("librdkafka", logging.CRITICAL + 1),
            "error_cb": lambda error: None,
            **client_settings(self.servers, self.options),
            **ours,
        }

    def failure(self, error: KafkaError) -> Exception:
        code, text = error.code(), error.str()
        where = f"kafka at {self.servers}"
        if code in _REFUSED:
            return HeadraceError(
                "SINK_REFUSED",
                f"{where} refuses: {text} ({error.name()}). Correct the options or the user's permissions.",
            )
        if code in _ABSENT:
            return HeadraceError("TOPIC_UNKNOWN", f"{where}: {text}. The topic does not exist; create it.")
        if code in _FENCED or error.fatal():
            return Fenced(f"{where}: {text}")
        return Unreachable(f"{where}: {text}")

    def producer(self, reports: Reports, ours: Mapping[str, Any], *, alone: bool = False) -> Producer:
        """A producer that reports which messages failed; ``alone`` sends each in a request of its own."""
        needs = {
            "message.max.bytes": self.max_bytes,
            "queue.buffering.max.messages": QUEUED_MESSAGES,
            "delivery.report.only.error": True,
            "on_delivery": reports.note,
            "error_cb": refusals_into(reports.errors),
        }
        together = {"batch.num.messages": 1} if alone else {}
        return self._built(Producer, _SETTINGS | self.settings({**needs, **ours, **together}))

    def topics(self, producer: Producer, reports: Reports, topic: str = "") -> set[str]:
        """The names of all topics, or of one that must exist; connects the producer."""
        asked = {"topic": topic} if topic else {}
        try:
            known = self.answer(lambda: producer.list_topics(timeout=PATIENCE, **asked).topics)
            if topic and known[topic].error is not None:
                raise self.failure(known[topic].error)
            return set(known)
        except Unreachable:
            producer.poll(0)
            if not reports.errors:
                raise
        raise self.failure(reports.errors[0])

    def group(self, name: str, *, isolation: str = "read_committed") -> Consumer:
        """A consumer that never reads: it stands for the group whose committed offset is a mark.

        One with ``read_uncommitted`` does not wait for a transaction that is open: it gives the offset before that.
        """
        ours = {"group.id": name, "enable.auto.commit": False, "isolation.level": isolation}
        return self._built(Consumer, self.settings(ours))

    def _built(self, kind: Callable[[dict[str, Any]], Answer], settings: dict[str, Any]) -> Answer:
        try:
            return kind(settings)
        except (KafkaException, ValueError, TypeError) as problem:
            text = str(problem.args[0])
        raise HeadraceError("KAFKA_OPTION", f"kafka at {self.servers}: {text}. Correct the options of hr.to_kafka.")

    def answer(self, call: Callable[[], Answer], *, limit: float = PATIENCE) -> Answer:
        """The answer of a blocking call; one that overruns its own timeout is abandoned in its thread."""
        answer: Future[Answer] = Future()

        def ask() -> None:
            try:
                answer.set_result(call())
            except Exception as problem:
                # Without its traceback, which would keep the client alive in the wrong thread.
                answer.set_exception(problem.with_traceback(None))

        Thread(target=ask, daemon=True).start()
        try:
            return answer.result(timeout=limit + 1)
        except TimeoutError:
            raise Unreachable(f"kafka at {self.servers} gave no answer in {limit:.0f} seconds") from None
        except KafkaException as problem:
            raise self.failure(problem.args[0]) from None


def send(producer: Producer, topic: str, messages: Sequence[Message], cluster: Cluster) -> None:
    """Produce messages; the queue is bounded, so that a slow broker slows the caller down."""
    produce = producer.produce
    try:
        for value, key in messages:
            try:
                produce(topic, value, key)
            except BufferError:
                _send_when_there_is_room(producer, topic, (value, key), cluster)
    except KafkaException as problem:
        raise cluster.failure(problem.args[0]) from None


def _send_when_there_is_room(producer: Producer, topic: str, message: Message, cluster: Cluster) -> None:
    """Produce a message after making room in the queue, which is full by number or by bytes."""
    queued = -1
    while queued != 0:
        queued = len(producer)
        _drain(producer, cluster, until=queued // 2)
        with suppress(BufferError):
            return producer.produce(topic, *message)
    raise HeadraceError(
        "KAFKA_OPTION",
        f"kafka at {cluster.servers}: a message for topic {topic!r} is larger than the whole queue. "
        "Raise queue.buffering.max.kbytes in the options of hr.to_kafka.",
    )


def finish(producer: Producer, cluster: Cluster, reports: Reports, *, all_or_none: bool) -> None:
    """Wait until every message is acknowledged or has failed or, where all must arrive, until one has failed."""
    _drain(producer, cluster, until=0, stop=lambda: all_or_none and reports.any)


def _drain(producer: Producer, cluster: Cluster, *, until: int, stop: Callable[[], bool] = lambda: False) -> None:
    """Wait until at most ``until`` messages are unacknowledged, as long as their number falls."""
    least, moved = len(producer), time.monotonic()
    try:
        while (left := producer.flush(0.1)) > until and not stop():
            if left < least:
                least, moved = left, time.monotonic()
            elif time.monotonic() - moved > PATIENCE:
                raise Unreachable(
                    f"kafka at {cluster.servers} acknowledged none of {left} messages in {PATIENCE:.0f} seconds"
                )
    except KafkaException as problem:
        raise cluster.failure(problem.args[0]) from None


def let_go(clients: list[Any]) -> None:
    """Drop clients in another thread: destroying one that lost its broker can block for minutes."""
    left = list(clients)
    clients.clear()

    def drop() -> None:
        # Until then the traceback of the error that is being handled may hold references in the caller's thread.
        time.sleep(LINGER)
        left.clear()

    Thread(target=drop, daemon=True).start()
