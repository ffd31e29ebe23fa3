"""What can be said about a topic before the first message: whether it is there, and what it takes."""

from __future__ import annotations

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, ConfigResource

from headrace.connectors.kafka.clients import PATIENCE, Cluster, let_go
from headrace.errors import HeadraceError

_LIMIT = "max.message.bytes"


def check_topic(cluster: Cluster, topic: str) -> None:
    """Fail unless the topic is there and takes messages as large as the sink's limit."""
    errors: list[KafkaError] = []
    clients = [cluster.producer(errors, {})]
    try:
        # All topics, not this one: asking for one by name may create it.
        known = cluster.topics(clients[0], errors)
    finally:
        let_go(clients)
    if topic not in known:
        names = sorted(name for name in known if not name.startswith("__"))
        raise HeadraceError(
            "TOPIC_UNKNOWN",
            f"kafka at {cluster.servers} has no topic {topic!r}. Existing topics: {', '.join(names) or 'none'}. "
            "Create it, or mend its name.",
        )
    limit = _limit(cluster, topic)
    if limit is not None and limit < cluster.max_bytes:
        raise HeadraceError(
            "MESSAGE_LIMIT",
            f"kafka topic {topic!r} takes messages of {limit} bytes ({_LIMIT}), the sink would send up to "
            f"{cluster.max_bytes}. Give max_bytes={limit}, or raise the topic's limit.",
        )


def _limit(cluster: Cluster, topic: str) -> int | None:
    """The topic's largest message, if we may know it."""
    clients = [AdminClient(cluster.settings({}))]
    asked = ConfigResource("topic", topic)
    try:
        described = cluster.answer(
            lambda: clients[0].describe_configs([asked], request_timeout=PATIENCE)[asked].result()
        )
    except HeadraceError:
        return None
    finally:
        let_go(clients)
    value = described[_LIMIT].value
    return None if value is None else int(value)
