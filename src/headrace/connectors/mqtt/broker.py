"""An MQTT broker: address, login, topics, and the check before the first batch."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from headrace.errors import DefinitionError, HeadraceError
from headrace.secrets import Secret, revealed

AT_ONCE = 10_000
"""The most messages that the broker sends unacknowledged, and so the most in one file."""
KEPT_SECONDS = 30 * 24 * 3600
"""How long the broker keeps messages for a disconnected client."""
ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and the topics that are read from it."""

    servers: str
    topics: tuple[str, ...]
    username: str | None = None
    password: str | Secret | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.address()
        if not self.topics or not all(map(is_filter, self.topics)):
            raise DefinitionError(
                "TOPIC_INVALID",
                f"read_mqtt: topics={list(self.topics)!r} must be names such as 'plant/+/heat' or 'plant/#', where + "
                "and # stand for whole levels and # is the last.",
            )

    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.servers.rpartition(":")
        if not host or not port.isdigit():
            raise DefinitionError(
                "SERVERS_INVALID", f"read_mqtt: servers={self.servers!r} is not 'host:port', as in '127.0.0.1:1883'."
            )
        return host, int(port)

    def client(self, client_id: str) -> Client:
        """A client that acknowledges messages itself."""
        client = Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True)
        if self.username is not None:
            client.username_pw_set(self.username, None if self.password is None else revealed(self.password))
        client.reconnect_delay_set(1, 10)
        return client

    def connect(self, client: Client, *, kept: int) -> None:
        """Start to connect; the broker keeps the session for ``kept`` seconds after the connection ends."""
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = kept
        properties.ReceiveMaximum = AT_ONCE
        host, port = self.address()
        client.connect_async(host, port, clean_start=not kept, properties=properties)
        client.loop_start()

    def subscribe(self, client: Client) -> None:
        """Subscribe to the topics; retained messages come to a new session only, not after every restart."""
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        client.subscribe([(topic, options) for topic in self.topics])

    def check(self) -> None:
        """Fail if the broker does not answer, refuses the login or refuses a topic."""
        said: queue.Queue[tuple[str, Sequence[Any]]] = queue.Queue()
        client = self.client("")
        client.on_connect = lambda _client, _data, _flags, reason, _properties: said.put(("connect", [reason]))
        client.on_subscribe = lambda _client, _data, _mid, reasons, _properties: said.put(("subscribe", reasons))
        self.connect(client, kept=0)
        try:
            self._listen(said, "connect")
            self.subscribe(client)
            self._listen(said, "subscribe")
        finally:
            client.disconnect()
            client.loop_stop()

    def _listen(self, said: queue.Queue[tuple[str, Sequence[Any]]], expected: str) -> None:
        until = time.monotonic() + ANSWER_SECONDS
        try:
            while True:
                what, reasons = said.get(timeout=max(0.0, until - time.monotonic()))
                refused = [str(reason) for reason in reasons if reason.is_failure]
                if refused:
                    raise HeadraceError(
                        "SOURCE_REFUSED",
                        f"MQTT broker {self.servers}: {refused[0]} for user {self.username!r} and topics "
                        f"{', '.join(self.topics)}. Correct username and password, or let the user read the topics.",
                    )
                if what == expected:
                    return
        except queue.Empty:
            raise HeadraceError(
                "SOURCE_UNREACHABLE",
                f"MQTT broker {self.servers} does not answer. Start it or correct the address.",
            ) from None


def is_filter(topic: str) -> bool:
    """Whether a text is an MQTT topic filter.

    >>> [is_filter(topic) for topic in ("plant/+/heat", "#", "", "plant/a+", "plant/#/heat")]
    [True, True, False, False, False]
    """
    levels = topic.split("/")
    return (
        bool(topic)
        and all(len(level) == 1 or not set(level) & {"+", "#"} for level in levels)
        and "#" not in levels[:-1]
    )
