"""A writer's transactions: its messages and its mark, a consumer group's offset, are committed atomically."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.connectors.base.sink import Mark, Unreachable, WriterBatch, already_written, check_epoch
from headrace.connectors.kafka.client import (
    PATIENCE,
    Cluster,
    Fenced,
    Message,
    MessagesRefused,
    Reports,
    finish,
    let_go,
    send,
)
from headrace.errors import HeadraceError

BATCHES = 2**40
"""More batches than a generation can have, so that generation and batch fit into one offset."""
CLAIMED = 0
"""The offset of a writer that has claimed its epoch and written nothing; negative offsets cannot be stored."""
TAKE_OVER = 20.0
"""Seconds in which a broker must have ended the predecessor's transaction."""
GLANCE = 1.0
_CHOOSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
"""While brokers settle which of them knows a group, as when the first group is asked for."""
ASK_AGAIN_SECONDS = 0.1
KEPT = 8
"""How many writers' clients a worker keeps; each has its own threads and connections."""
CLAIMS = 5


@dataclass(frozen=True, slots=True)
class MarkOffset:
    """A writer's mark as it is stored: the committed offset of a consumer group."""

    owner: str
    """The producer that stored it; if it is not ours, it may have fenced ours."""
    mark: Mark

    def position(self, topic: str) -> TopicPartition:
        """As a group offset with metadata; a later batch, and a later generation, has a higher offset."""
        mark = self.mark
        offset = CLAIMED
        if mark.generation is not None and mark.batch is not None:
            offset = mark.generation * BATCHES + mark.batch + 1
        about = {"epoch": mark.epoch, "rows": mark.rows, "token": mark.token, "owner": self.owner}
        return TopicPartition(topic, 0, offset, json.dumps({**about, "at": int(time.time())}))


def read_mark(position: TopicPartition) -> MarkOffset | None:
    """The mark in a committed offset; None if nothing was ever committed or it has expired."""
    if position.offset < 0:
        return None
    try:
        metadata = json.loads(position.metadata or "")
        epoch, owner, rows = int(metadata["epoch"]), str(metadata["owner"]), int(metadata["rows"])
        token = str(metadata["token"])
    except (ValueError, KeyError, TypeError):
        raise HeadraceError(
            "MARK_UNREADABLE",
            f"kafka topic {position.topic!r}: another program has committed offset {position.offset} to the writer's "
            "group. Stop it and continue from a new checkpoint.",
        ) from None
    if position.offset == CLAIMED:
        return MarkOffset(owner, Mark(epoch))
    generation, batch = divmod(position.offset - 1, BATCHES)
    return MarkOffset(owner, Mark(epoch, generation, batch, rows, token))


def _group(writer: str, topic: str) -> str:
    """The consumer group whose offset is a writer's mark; its producer has the same name."""
    return f"{writer}.{topic}"


class Transactions:
    """A transactional producer, and the consumer group of the same name."""

    def __init__(self, cluster: Cluster, topic: str, writer: str, *, alone: bool = False) -> None:
        self.owner = uuid.uuid4().hex
        self._cluster, self._topic, self._writer = cluster, topic, writer
        self._reports = Reports()
        name = _group(writer, topic)
        self._producer = cluster.producer(self._reports, {"transactional.id": name}, alone=alone)
        self._group = cluster.group(name)

    def take_over(self, epoch: int) -> MarkOffset | None:
        """Fence the previous producer of this name and abort its transaction, then read the mark."""
        # A producer that knows its topic takes half a second less for what follows.
        self._cluster.topics(self._producer, self._reports, self._topic)
        # A driver that has lost its lease learns it here, before it fences its successor's producer. While a
        # transaction is open there is no answer, and none is needed.
        with suppress(Unreachable):
            self._checked(epoch, limit=GLANCE)
        self._cluster.answer(lambda: self._producer.init_transactions(TAKE_OVER), limit=TAKE_OVER)
        # Only now: before, the predecessor's last transaction could still commit or abort.
        return self._checked(epoch)

    def _checked(self, epoch: int, *, limit: float = PATIENCE) -> MarkOffset | None:
        stored = self.stored(limit=limit)
        if stored is not None:
            place = self._cluster.place(self._topic)
            check_epoch(epoch, stored.mark.epoch, place=place, writer=self._writer)
        return stored

    def stored(self, *, limit: float = PATIENCE) -> MarkOffset | None:
        """The stored mark; waits for a transaction that is just being ended."""
        return _stored(self._cluster, self._group, self._topic, limit)

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages in a new transaction: the broker has all, or MessagesRefused names those that it may refuse."""
        self._reports.clear()
        self._cluster.answer(self._producer.begin_transaction)
        try:
            send(self._producer, self._topic, messages, self._cluster)
            finish(self._producer, self._cluster, self._reports, all_or_none=True)
        except Unreachable:
            # A transaction in which a message has failed takes no more.
            self._producer.flush(GLANCE)
            if not self._reports.refused:
                raise
        if self._reports.refused:
            raise MessagesRefused(self._reports.refused)
        if self._reports.errors:
            raise self._cluster.failure(self._reports.errors[0])

    def abort(self) -> None:
        """End the transaction without its messages."""
        self._cluster.answer(lambda: self._producer.abort_transaction(PATIENCE))

    def commit(self, mark: Mark) -> None:
        """End the transaction, with a mark beside its messages."""
        position = MarkOffset(self.owner, mark).position(self._topic)
        group = self._cluster.answer(self._group.consumer_group_metadata)
        self._cluster.answer(lambda: self._producer.send_offsets_to_transaction([position], group, PATIENCE))
        self._cluster.answer(lambda: self._producer.commit_transaction(PATIENCE))

    def close(self) -> None:
        """Drop the clients; the next producer of this name ends an open transaction."""
        let_go([self._producer, self._group])
        del self._producer, self._group


_kept: dict[tuple[Cluster, str, str], Transactions] = {}
"""The clients of writers, kept in this worker between batches and dropped after any error."""


def write_once(
    cluster: Cluster, topic: str, messages: Sequence[Message], part: WriterBatch
) -> tuple[bool, Mapping[Message, str]]:
    """Write messages and mark in one transaction; whether that was done already, and the messages that are refused."""
    refused: dict[Message, str] = {}
    while True:
        taken = [message for message in messages if message not in refused] if refused else messages
        try:
            return _write_once(cluster, topic, taken, part), refused
        except MessagesRefused as found:
            refused |= _refused_alone(cluster, topic, list(found.messages), part)


def _refused_alone(
    cluster: Cluster, topic: str, messages: Sequence[Message], part: WriterBatch
) -> Mapping[Message, str]:
    """The first of some messages that the broker refuses, each sent in a request of its own."""
    ours = Transactions(cluster, topic, part.writer, alone=True)
    try:
        ours.take_over(part.batch.epoch)
        ours.send(messages)
        ours.abort()
    except MessagesRefused as found:
        return found.messages
    finally:
        ours.close()
    raise Unreachable(f"{cluster.place(topic)} refused {len(messages)} messages together, but none of them alone")


def _write_once(cluster: Cluster, topic: str, messages: Sequence[Message], part: WriterBatch) -> bool:
    key, batch = (cluster, topic, part.writer), part.batch
    ours, stored = _kept.pop(key, None), None
    try:
        if ours is not None:
            stored = ours.stored()
            # If another worker has written for this writer in between, its producer has fenced this one.
            if stored is None or stored.owner != ours.owner:
                ours.close()
                ours = None
        if ours is None:
            ours = Transactions(*key)
            stored = ours.take_over(batch.epoch)
        mark = None if stored is None else stored.mark
        is_written = already_written(part, mark, place=cluster.place(topic))
        if not is_written:
            ours.send(messages)
            ours.commit(Mark(batch.epoch, batch.generation, batch.batch, len(messages), batch.token))
        elif mark is not None and len(messages) > mark.rows:
            # The others were refused then: the broker says which ones.
            ours.send(messages)
            ours.abort()
            raise HeadraceError(
                "BATCH_DIFFERS",
                f"{cluster.place(topic)}: batch {batch.batch} had {mark.rows} messages and has {len(messages)} now. A "
                "step of the pipeline is not repeatable, or the topic has other settings; continue from a new "
                "checkpoint.",
            )
    except BaseException:
        if ours is not None:
            ours.close()
        raise
    _kept[key] = ours
    if len(_kept) > KEPT:
        _kept.pop(next(iter(_kept))).close()
    return is_written


_plain_producers: dict[tuple[Cluster, bool], tuple[list[Producer], Reports]] = {}


def write_each_time(cluster: Cluster, topic: str, messages: Sequence[Message]) -> Mapping[Message, str]:
    """Write messages without a transaction and wait until all are acknowledged; returns those that are refused."""
    reports = _written(cluster, topic, messages)
    suspects = [*reports.refused, *reports.beside]
    return _written(cluster, topic, suspects, alone=True).refused if suspects else {}


def _written(cluster: Cluster, topic: str, messages: Sequence[Message], *, alone: bool = False) -> Reports:
    clients, reports = _plain_producers.pop((cluster, alone), ([], Reports()))
    reports.clear()
    try:
        if not clients:
            clients.append(cluster.producer(reports, {"enable.idempotence": True}, alone=alone))
        cluster.topics(clients[0], reports, topic)
        send(clients[0], topic, messages, cluster)
        finish(clients[0], cluster, reports, all_or_none=False)
        if reports.errors:
            raise cluster.failure(reports.errors[0])
    except BaseException:
        let_go(clients)
        raise
    _plain_producers[cluster, alone] = (clients, reports)
    return reports


def read_mark_of(cluster: Cluster, topic: str, writer: str) -> Mark | None:
    """A writer's mark as it was last committed."""
    # Not by the admin client, which crashes while a broker has no groups yet.
    clients = [cluster.group(_group(writer, topic), isolation="read_uncommitted")]
    try:
        stored = _stored(cluster, clients[0], topic, PATIENCE)
        return None if stored is None else stored.mark
    finally:
        let_go(clients)


def _stored(cluster: Cluster, group: Consumer, topic: str, limit: float) -> MarkOffset | None:
    deadline = time.monotonic() + limit

    def committed() -> list[TopicPartition]:
        while True:
            try:
                return group.committed([TopicPartition(topic, 0)], timeout=max(0.0, deadline - time.monotonic()))
            except KafkaException as problem:
                if problem.args[0].code() not in _CHOOSING or time.monotonic() > deadline:
                    raise
            time.sleep(ASK_AGAIN_SECONDS)

    [position] = cluster.answer(committed, limit=limit)
    if position.error is not None:
        raise cluster.failure(position.error)
    return read_mark(position)


def claim(cluster: Cluster, topic: str, writer: str, epoch: int) -> None:
    """Store the epoch in the writer's mark: from now on no driver of an older epoch can write."""
    for attempt in range(CLAIMS):
        ours = Transactions(cluster, topic, writer)
        try:
            stored = ours.take_over(epoch)
            ours.send([])
            ours.commit(Mark(epoch) if stored is None else replace(stored.mark, epoch=epoch))
        except Fenced:
            # By a zombie driver that claims at the same time: one of the two will see the other's epoch.
            if attempt == CLAIMS - 1:
                raise
        else:
            return
        finally:
            ours.close()
