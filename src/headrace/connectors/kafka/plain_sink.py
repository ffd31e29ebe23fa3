"""Kafka without transactions: every message is acknowledged, and a batch that runs again is written again."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, Producer

from headrace.connectors.kafka.clients import Cluster, Message, finish, let_go, send

_kept: dict[Cluster, tuple[list[Producer], list[KafkaError]]] = {}


def write_plainly(cluster: Cluster, topic: str, messages: Sequence[Message]) -> None:
    """Produce messages and wait until the brokers have them all."""
    clients, errors = _kept.pop(cluster) if cluster in _kept else _opened(cluster)
    try:
        cluster.topics(clients[0], errors, topic)
        send(clients[0], topic, messages, cluster)
        finish(clients[0], cluster, errors)
    except BaseException:
        let_go(clients)
        raise
    _kept[cluster] = (clients, errors)


def _opened(cluster: Cluster) -> tuple[list[Producer], list[KafkaError]]:
    errors: list[KafkaError] = []
    return [cluster.producer(errors, {"enable.idempotence": True})], errors
