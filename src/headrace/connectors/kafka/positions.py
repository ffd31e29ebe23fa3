"""Offsets of a Kafka subscription: where its partitions begin and end, and how much of them a batch takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.connectors.base.sink import Unreachable
from headrace.connectors.kafka.client import Answer, client_settings, refusals_into, unknown_topic
from headrace.errors import DefinitionError, HeadraceError, check_choice
from headrace.event_time.strategy import instant
from headrace.secrets import Secret

PATIENCE_SECONDS = 5.0
Positions = dict[str, int]
"""The next offset of each ``topic/partition``."""
Start = str | datetime | Mapping[str, Mapping[int, int]]
OnLost = Literal["fail", "count"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics of a cluster."""

    servers: str
    topics: tuple[str, ...]
    pattern: bool
    start: str
    """``earliest``, ``latest``, ``at <microseconds>``, or JSON of exact positions."""
    on_lost: OnLost
    options: tuple[tuple[str, str | Secret], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_choice(OnLost, on_lost=self.on_lost)

    def client_options(self) -> dict[str, Any]:
        return client_settings(self.servers, self.options)

    def __repr__(self) -> str:
        return f"topic {' '.join(self.topics)} at {self.servers}"


class Topics:
    """Asks the brokers about the partitions of a subscription."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._refusals = list[KafkaError]()
        self._client: AdminClient | None = None

    def initial(self) -> Positions:
        names, start = self._partitions(), self._subscription.start
        if start == "earliest":
            return self.earliest(names)
        if start == "latest":
            return self._ask(names, OffsetSpec.latest())
        if start.startswith("at "):
            found = self._ask(names, OffsetSpec.for_timestamp(int(start.removeprefix("at ")) // 1000))
            ends = self._ask([name for name, offset in found.items() if offset < 0], OffsetSpec.latest())
            return {**found, **ends}
        return {**self.earliest(names), **json.loads(start)}

    def earliest(self, names: list[str]) -> Positions:
        return self._ask(names, OffsetSpec.earliest())

    def latest(self) -> Positions:
        """The offset after each partition's last row that no open transaction hides."""
        return self._ask(self._partitions(), OffsetSpec.latest())

    def check(self) -> None:
        try:
            self._partitions()
        except Unreachable as problem:
            if self._refusals:
                raise HeadraceError(
                    "SOURCE_REFUSED",
                    f"kafka {self._subscription!r} refuses: {self._refusals[-1].str()}. Correct the options.",
                ) from None
            raise HeadraceError(
                "SOURCE_UNREACHABLE",
                f"kafka {self._subscription!r} does not answer: {problem}. Start the brokers or correct servers=...",
            ) from None

    def _partitions(self) -> list[str]:
        known = self._answer(lambda client: client.list_topics(timeout=PATIENCE_SECONDS).topics)
        wanted = self._subscription.topics
        if self._subscription.pattern:
            chosen = sorted(name for name in known if any(re.fullmatch(topic, name) for topic in wanted))
        else:
            missing = [topic for topic in wanted if topic not in known]
            if missing:
                raise unknown_topic(self._subscription.servers, missing[0], known)
            chosen = list(wanted)
        return [f"{topic}/{number}" for topic in chosen for number in sorted(known[topic].partitions)]

    def _ask(self, names: list[str], what: OffsetSpec) -> Positions:
        if not names:
            return {}
        asked = {name: TopicPartition(*split(name)) for name in names}
        how = {"isolation_level": IsolationLevel.READ_COMMITTED, "request_timeout": PATIENCE_SECONDS}

        def offsets(client: AdminClient) -> Positions:
            answers = client.list_offsets(dict.fromkeys(asked.values(), what), **how)
            return {name: answers[partition].result().offset for name, partition in asked.items()}

        return self._answer(offsets)

    def _answer(self, question: Callable[[AdminClient], Answer]) -> Answer:
        if self._client is None:
            ours: dict[str, Any] = {"socket.timeout.ms": 5_000, "error_cb": refusals_into(self._refusals)}
            self._client = AdminClient({**ours, **self._subscription.client_options()})
        try:
            return question(self._client)
        except KafkaException as problem:
            self._client.poll(0)
            # A client that lived through an outage may go on saying that partitions have no leader.
            self._client = None
            raise Unreachable(problem.args[0].str()) from None


def split(name: str) -> tuple[str, int]:
    """Topic and number of a partition, which is named ``topic/number``."""
    topic, _, number = name.rpartition("/")
    return topic, int(number)


def start_text(start: Start) -> str:
    """A start position as text for the subscription."""
    if isinstance(start, str) and start in ("earliest", "latest"):
        return start
    if isinstance(start, Mapping):
        return json.dumps({f"{topic}/{p}": offset for topic, part in start.items() for p, offset in part.items()})
    if isinstance(start, datetime | str):
        return f"at {instant(start, argument='start')}"
    raise DefinitionError(
        "START_UNKNOWN",
        f"start={start!r} is not known. Use 'earliest', 'latest', a moment, or {{'payments': {{0: 17}}}}.",
    )


def capped(start: Positions, latest: Positions, cap: int | None) -> Positions:
    """Where a batch of at most ``cap`` rows ends; each partition gets a share in proportion to its lag."""
    waiting = {name: max(0, end - start.get(name, 0)) for name, end in latest.items()}
    total = sum(waiting.values())
    if cap is None or total <= cap:
        return dict(latest)
    return {
        name: start.get(name, 0) + min(rows, max(1, rows * cap // total)) if rows > 0 else latest[name]
        for name, rows in waiting.items()
    }


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive offsets of one partition, for one task."""

    topic: str
    partition: int
    first: int
    until: int

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"


def slices(start: Positions, end: Positions, *, largest: int) -> list[Slice]:
    """The slices of a batch, each of at most ``largest`` offsets."""
    found = []
    for name, until in end.items():
        topic, number = split(name)
        # A partition that ends before our position was recreated: it is read from its beginning.
        begin = start.get(name, 0) if start.get(name, 0) <= until else 0
        for first in range(begin, until, largest):
            found.append(Slice(topic, number, first, min(first + largest, until)))
    return found
