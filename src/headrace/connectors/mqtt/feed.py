"""Takes messages over from an MQTT broker: they land in a file on disk, and only then does the broker forget them."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage

from headrace.connectors.files.landing import LandingLog, Message
from headrace.connectors.mqtt.broker import ANSWER_SECONDS, AT_ONCE, KEPT_SECONDS, Broker
from headrace.outages import OutageMarker
from headrace.storage import write_durably

COLLECT_SECONDS = 0.2
QUIET_SECONDS = 0.3
RETRY_SECONDS = 1.0
CLIENT = "_client"
"""The file with the name under which the broker knows this landing log; Spark passes over such files."""


@dataclass(frozen=True, slots=True)
class Held:
    """A message that the broker waits to hear about, and the connection on which it came."""

    message: Message
    id: int
    quality: int
    connection: int


class MqttFeed:
    """A client that runs on the driver beside the flows; what the broker has kept for it lands first."""

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        client_id: str | None,
        outage_markers: Callable[[], Sequence[OutageMarker]] = tuple,
    ) -> None:
        self._broker = broker
        self._log = LandingLog(folder)
        self._client_id = client_id
        self._outage_markers = outage_markers
        self._client: Client | None = None
        self._connection = 0
        self._subscribed = threading.Event()
        self._stopping = threading.Event()
        # Bounded, so that a disk that does not keep up slows the broker down.
        self._queue: queue.Queue[Held] = queue.Queue(2 * AT_ONCE)
        self._heard = 0.0
        self._lander = threading.Thread(target=self._land, name="headrace-mqtt", daemon=True)

    def start(self) -> None:
        """Begin; returns when what the broker has kept has landed, or after some seconds."""
        self._log.open()
        client = self._broker.client(self._client_id or own_id(self._log.folder))
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
            while (now := time.monotonic()) < until and (now < self._heard + QUIET_SECONDS or self._landing()):
                time.sleep(QUIET_SECONDS / 10)

    def stop(self) -> None:
        """Land and acknowledge what has come, and leave; the broker keeps what comes from now on."""
        self._stopping.set()
        client = self._client
        if client is not None:
            self._lander.join()
            # A broker that is left at once forgets acknowledgements it has not read; after them it answers this.
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
        for marker in self._outage_markers():
            marker.begin(reason)

    def _go_on(self) -> None:
        for marker in self._outage_markers():
            marker.end()

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._heard = time.monotonic()
        content = Message(message.topic, bytes(message.payload), time.time_ns() // 1000)
        held = Held(content, message.mid, message.qos, self._connection)
        while not self._stopping.is_set():
            try:
                self._queue.put(held, timeout=RETRY_SECONDS)
                return
            except queue.Full:
                continue

    def _land(self) -> None:
        while not (self._stopping.is_set() and self._queue.empty()):
            held = self._collect()
            stuck = False
            while held:
                try:
                    self._log.append([each.message for each in held])
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

    def _landing(self) -> bool:
        """Whether messages have come that are not in the log yet."""
        return self._queue.unfinished_tasks > 0

    def _collect(self) -> list[Held]:
        """What comes in a short time after a first message."""
        try:
            held = [self._queue.get(timeout=COLLECT_SECONDS)]
        except queue.Empty:
            return []
        until = time.monotonic() + COLLECT_SECONDS
        while len(held) < AT_ONCE and (left := until - time.monotonic()) > 0:
            try:
                held.append(self._queue.get(timeout=left))
            except queue.Empty:
                break
        return held

    def acknowledge(self, held: Sequence[Held]) -> None:
        """Let the broker forget messages that have landed."""
        for each in held:
            # On a new connection the broker sends the message again, and its number may mean another one.
            if self._client is not None and each.quality and each.connection == self._connection:
                self._client.ack(each.id, each.quality)


def own_id(folder: Path) -> str:
    """The name under which the broker knows a landing log, made up once: two checkpoints never share one."""
    file = folder / CLIENT
    if not file.exists():
        write_durably(file, f"headrace-{folder.name}-{uuid.uuid4().hex[:12]}")
    return file.read_text(encoding="utf-8")
