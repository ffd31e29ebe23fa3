"""The MQTT client on the driver: writes messages to a landing log, then acknowledges them."""

from __future__ import annotations

import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from headrace.checkpoint.outages import OutageMarker
from headrace.errors import DefinitionError, HeadraceError
from headrace.secrets import Secret, revealed
from headrace.storage import durable_file, made_once, open_binary

RECEIVE_MAXIMUM = 10_000
"""The most messages that the broker sends unacknowledged, and so the most in one file."""
KEPT_SECONDS = 30 * 24 * 3600
"""How long the broker keeps messages for a disconnected client."""
ANSWER_SECONDS = 5.0
COLLECT_SECONDS = 0.2
QUIET_SECONDS = 0.3
RETRY_SECONDS = 1.0
CLIENT = "_client"
"""The file with this landing log's own id, by which the broker knows it unless it is given another; files whose names
begin with an underscore are hidden."""
SCHEMA = pa.schema([("topic", pa.string()), ("payload", pa.binary()), ("arrived", pa.int64())])


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
                f"read_mqtt: topics={list(self.topics)!r} must be filters such as 'plant/+/heat' or 'plant/#'.",
            )

    def address(self) -> tuple[str, int]:
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
        properties.ReceiveMaximum = RECEIVE_MAXIMUM
        host, port = self.address()
        client.connect_async(host, port, clean_start=not kept, properties=properties)
        client.loop_start()

    def subscribe(self, client: Client) -> None:
        """Subscribe to the topics; retained messages come to a new session only, not after every restart."""
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        client.subscribe([(topic, options) for topic in self.topics])

    def check(self) -> None:
        """Fail if the broker does not answer, refuses the login or refuses a topic."""
        answers: queue.SimpleQueue[Sequence[Any]] = queue.SimpleQueue()
        client = self.client("")
        client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.put([reason])
        client.on_subscribe = lambda _client, _data, _mid, reasons, _properties: answers.put(reasons)
        self.connect(client, kept=0)
        try:
            self._check_accepted(answers.get(timeout=ANSWER_SECONDS))
            self.subscribe(client)
            self._check_accepted(answers.get(timeout=ANSWER_SECONDS))
        except queue.Empty:
            raise HeadraceError(
                "SOURCE_UNREACHABLE", f"MQTT broker {self.servers} does not answer. Start it or correct the address."
            ) from None
        finally:
            client.disconnect()
            client.loop_stop()

    def _check_accepted(self, reasons: Sequence[Any]) -> None:
        refused = [str(reason) for reason in reasons if reason.is_failure]
        if refused:
            raise HeadraceError(
                "SOURCE_REFUSED",
                f"MQTT broker {self.servers}: {refused[0]} for user {self.username!r} and topics "
                f"{', '.join(self.topics)}. Correct username and password, or let the user read the topics.",
            )


def is_filter(topic: str) -> bool:
    """Whether a text is an MQTT topic filter.

    >>> [is_filter(topic) for topic in ("plant/+/heat", "#", "", "plant/a+", "plant/#/heat")]
    [True, True, False, False, False]
    """
    return topic != "" and re.fullmatch(r"((\+|[^+#/]*)/)*(\+|#|[^+#/]*)", topic) is not None


@dataclass(frozen=True, slots=True)
class MqttMessage:
    """A message, when it arrived in microseconds, and what its acknowledgement needs."""

    topic: str
    payload: bytes
    arrived: int
    id: int = 0
    quality: int = 0
    connection: int = 0
    """The number of the connection that it came on."""


class LandingLog:
    """Numbered files of messages in one folder; a new log continues after the last number."""

    def __init__(self, folder: Path) -> None:
        numbers = (int(file.name.split("-")[0]) for file in folder.glob("[0-9]*.arrow"))
        self.folder, self.next = folder, max(numbers, default=-1) + 1

    def append(self, messages: Sequence[MqttMessage]) -> Path:
        """Write a file that appears whole and survives a crash of the machine."""
        columns = zip(*((message.topic, message.payload, message.arrived) for message in messages), strict=True)
        table = pa.table([pa.array(column) for column in columns], schema=SCHEMA)
        # The random part keeps two feeds apart: a driver that was replaced may not know it yet.
        file = self.folder / f"{self.next:08d}-{uuid.uuid4().hex[:8]}.arrow"
        with durable_file(file) as stream, pa.ipc.new_file(stream, SCHEMA) as writer:
            writer.write_table(table)
        self.next += 1
        return file


def landed(path: str) -> pa.Table:
    """The messages of one file."""
    with open_binary(path) as stream:
        return pa.ipc.open_file(stream).read_all()


class MqttFeed:
    """A client on the driver; what the broker has kept for it lands first."""

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        client_id: str | None,
        outages: Callable[[], Sequence[OutageMarker]] = tuple,
    ) -> None:
        self._broker = broker
        self._folder = folder
        self._client_id = client_id
        self._outages = outages
        self._client: Client | None = None
        self._connection = 0
        self._subscribed = threading.Event()
        self._stopping = threading.Event()
        # Bounded, so that a disk that does not keep up slows the broker down.
        self._queue: queue.Queue[MqttMessage] = queue.Queue(2 * RECEIVE_MAXIMUM)
        self._heard = 0.0
        self._lander = threading.Thread(target=self._land, name="headrace-mqtt", daemon=True)

    def start(self) -> None:
        """Start; returns when what the broker has kept has landed, or after some seconds."""
        own = own_id(self._folder)
        # Only now: a driver that runs may have written files since this pipeline was defined.
        self._log = LandingLog(self._folder)
        client = self._broker.client(self._client_id or own)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        self._client = client
        self._lander.start()
        self._broker.connect(client, kept=KEPT_SECONDS)
        until = time.monotonic() + ANSWER_SECONDS
        if self._subscribed.wait(ANSWER_SECONDS):
            self._heard = time.monotonic()
            while (now := time.monotonic()) < until and (
                now < self._heard + QUIET_SECONDS or self._queue.unfinished_tasks
            ):
                time.sleep(QUIET_SECONDS / 10)

    def stop(self) -> None:
        """Land and acknowledge what has arrived, then disconnect; the broker keeps what comes from now on."""
        self._stopping.set()
        client = self._client
        if client is not None:
            self._lander.join()
            # A broker drops acknowledgements that it has not read when we disconnect; its answer to this comes after.
            self._subscribed.clear()
            if client.is_connected():
                self._broker.subscribe(client)
                self._subscribed.wait(ANSWER_SECONDS)
            client.disconnect()
            client.loop_stop()

    def _on_connect(self, client: Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._wait(str(reason))
            return
        self._connection += 1
        self._broker.subscribe(client)

    def _on_subscribe(self, *_: Any) -> None:
        self._subscribed.set()
        self._go_on()

    def _on_disconnect(self, _client: Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self._connection += 1
        if not self._stopping.is_set():
            self._wait(str(reason))

    def _wait(self, reason: str) -> None:
        for outage in self._outages():
            outage.begin(reason)

    def _go_on(self) -> None:
        for outage in self._outages():
            outage.end()

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._heard = time.monotonic()
        content, arrived = bytes(message.payload), time.time_ns() // 1000
        held = MqttMessage(message.topic, content, arrived, message.mid, message.qos, self._connection)
        while not self._stopping.is_set():
            with suppress(queue.Full):
                self._queue.put(held, timeout=RETRY_SECONDS)
                return

    def _land(self) -> None:
        while not (self._stopping.is_set() and self._queue.empty()):
            held = self._collect()
            stuck = False
            while held:
                try:
                    self._log.append(held)
                except OSError as problem:
                    stuck = True
                    self._wait(f"messages cannot be stored: {problem.strerror}")
                    if self._stopping.wait(RETRY_SECONDS):
                        return
                else:
                    if stuck:
                        self._go_on()
                    self.acknowledge(held)
                    for _ in held:
                        self._queue.task_done()
                    break

    def _collect(self) -> list[MqttMessage]:
        """The messages of a short time after the first one."""
        held: list[MqttMessage] = []
        with suppress(queue.Empty):
            held.append(self._queue.get(timeout=COLLECT_SECONDS))
            until = time.monotonic() + COLLECT_SECONDS
            while len(held) < RECEIVE_MAXIMUM and (left := until - time.monotonic()) > 0:
                held.append(self._queue.get(timeout=left))
        return held

    def acknowledge(self, held: Sequence[MqttMessage]) -> None:
        for each in held:
            # On a new connection the broker sends the message again, and its id may mean another message.
            if self._client is not None and each.quality and each.connection == self._connection:
                self._client.ack(each.id, each.quality)


def own_id(folder: Path) -> str:
    """The client id of a landing log, made up once, so that two checkpoints never share one."""
    return made_once(folder / CLIENT, f"headrace-{folder.name}-{uuid.uuid4().hex[:12]}")
