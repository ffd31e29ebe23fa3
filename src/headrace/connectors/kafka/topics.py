"""``hr.topic``: a topic to create where it is missing."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.connectors.base.sink import Unreachable
from headrace.connectors.kafka.client import PATIENCE, Cluster, let_go, refusals_into
from headrace.errors import DefinitionError, HeadraceError
from headrace.secrets import call_text
from headrace.stability import stable

BROKERS_CHOICE = -1
"""As many copies as the broker's ``default.replication.factor`` says."""
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True, repr=False)
class TopicSettings:
    """How a missing topic is made."""

    partitions: int
    replication: int | None
    config: tuple[tuple[str, str], ...]

    def create(self, cluster: Cluster, name: str) -> tuple[bool, int]:
        """Create a topic unless it exists, and wait until it is listed: whether it was missing, and its partitions."""
        refusals: list[KafkaError] = []
        clients: list[Any] = [AdminClient(cluster.settings({"error_cb": refusals_into(refusals)}))]
        try:
            if (known := self._partitions(cluster, clients[0], name)) is not None:
                return False, known
            self._create(cluster, clients[0], name)
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                if (known := self._partitions(cluster, clients[0], name)) is not None:
                    return True, known
                time.sleep(LOOK_SECONDS)
            raise Unreachable(f"{cluster.place(name)} was created and is not listed yet")
        except Unreachable:
            if refusals:
                raise cluster.failure(refusals[0]) from None
            raise
        finally:
            let_go(clients)

    def check(self, cluster: Cluster, name: str) -> None:
        """Ask the broker whether it would create the topic, unless it exists; nothing is created."""
        clients: list[Any] = [AdminClient(cluster.settings({}))]
        try:
            if self._partitions(cluster, clients[0], name) is None:
                self._create(cluster, clients[0], name, only_ask=True)
        finally:
            let_go(clients)

    def _partitions(self, cluster: Cluster, client: AdminClient, name: str) -> int | None:
        # All topics: asking for one by name may create it.
        listed = cluster.answer(lambda: client.list_topics(timeout=PATIENCE).topics).get(name)
        return len(listed.partitions) or None if listed is not None else None

    def _create(self, cluster: Cluster, client: AdminClient, name: str, *, only_ask: bool = False) -> None:
        replication = BROKERS_CHOICE if self.replication is None else self.replication
        wanted = NewTopic(name, self.partitions, replication, config=dict(self.config))

        def ask() -> KafkaError | None:
            try:
                limits = {"operation_timeout": PATIENCE, "request_timeout": PATIENCE}
                client.create_topics([wanted], validate_only=only_ask, **limits)[name].result()
            except KafkaException as problem:
                error: KafkaError = problem.args[0]
                return error
            return None

        error = cluster.answer(ask, limit=2 * PATIENCE)
        # Another driver may create it at the same moment.
        if error is None or error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        failure = cluster.failure(error)
        is_refused = isinstance(failure, HeadraceError) and failure.id == "SINK_REFUSED"
        if error.code() < 0 or error.retriable() or is_refused:
            raise failure
        raise HeadraceError(
            "TOPIC_NOT_CREATED",
            f"{cluster.place(name)} is missing, and the broker does not create it as {self!r}: {error.str()} "
            f"({error.name()}). Correct hr.topic(...), or create the topic yourself.",
        )

    def __repr__(self) -> str:
        config = dict(self.config) or None
        return call_text(topic, partitions=self.partitions, replication=self.replication, config=config)


def create_missing(cluster: Cluster, name: str, options: TopicSettings) -> None:
    """Create a topic where it is missing; say so if it is there with another number of partitions."""
    _, found = options.create(cluster, name)
    if found != options.partitions:
        warnings.warn(
            f"{cluster.place(name)} has {found} partitions, not {options.partitions}. It is left as it is: more "
            "partitions would move keys.",
            RuntimeWarning,
            stacklevel=2,
        )


@stable
def topic(*, partitions: int, replication: int | None = None, config: Mapping[str, str] | None = None) -> TopicSettings:
    """A topic to create if it is missing when the pipeline starts, as in ``hr.to_kafka(..., create=hr.topic(...))``.

    ``replication`` is the number of copies of each partition, by default what the broker is set to. ``config`` has
    Kafka's settings of topics. A topic that exists is left as it is.

    >>> topic(partitions=4, config={"cleanup.policy": "compact"})
    hr.topic(partitions=4, config={'cleanup.policy': 'compact'})
    """
    for option, given in {"partitions": partitions, "replication": replication}.items():
        if given is not None and (type(given) is not int or given < 1):
            raise DefinitionError(
                "TOPIC_INVALID", f"hr.topic: {option}={given!r} must be a whole number of at least 1."
            )
    return TopicSettings(partitions, replication, tuple(sorted((config or {}).items())))
