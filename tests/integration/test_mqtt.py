"""``hr.read_mqtt`` and a real Mosquitto: nothing is lost on the way into the landing log, nothing doubled behind it."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from polars import read_parquet
from pyspark.sql import SparkSession

import headrace as hr
from headrace.checkpoint.outages import OutageMarker, outages
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.mqtt.feed import Broker, MqttFeed, MqttMessage, landed
from headrace.connectors.mqtt.source import read_mqtt
from headrace.connectors.servers import running
from headrace.services.server import ANY, free_ports, is_free, program
from headrace.services.service import Service


@pytest.fixture
def topic() -> str:
    """A topic of this test's own."""
    return f"plant-{uuid.uuid4().hex[:8]}"


def _publish(address: str, messages: Sequence[tuple[str, bytes]]) -> None:
    host, port = address.split(":")
    publisher = Client(CallbackAPIVersion.VERSION2)
    publisher.max_inflight_messages_set(1000)
    publisher.connect(host, int(port))
    publisher.loop_start()
    for sent in [publisher.publish(topic, payload, qos=1) for topic, payload in messages]:
        sent.wait_for_publish(30)
    publisher.disconnect()
    publisher.loop_stop()


def _numbered(topic: str, numbers: range) -> list[tuple[str, bytes]]:
    return [(f"{topic}/{n % 2}", json.dumps({"id": n}).encode()) for n in numbers]


def _landed(folder: Path) -> list[int]:
    files = sorted(folder.glob("[0-9]*.arrow"))
    return [json.loads(payload)["id"] for file in files for payload in landed(str(file))["payload"].to_pylist()]


def _until(said: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not said():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


class Forgetful(MqttFeed):
    """Crashes, as the broker sees it, between storing messages and saying so."""

    def acknowledge(self, held: Sequence[MqttMessage]) -> None:
        """Says nothing."""


def test_messages_that_were_stored_but_not_acknowledged_come_again_and_none_is_lost(
    mosquitto: Service, topic: str, tmp_path: Path
) -> None:
    broker = Broker(mosquitto.address, (f"{topic}/+",))
    crashing = Forgetful(broker, tmp_path, None)
    crashing.start()
    _publish(mosquitto.address, _numbered(topic, range(300)))
    _until(lambda: len(_landed(tmp_path)) == 300)
    crashing.stop()
    _publish(mosquitto.address, _numbered(topic, range(300, 400)))
    for more in (0, 10):
        # What the broker kept has landed when start returns; the second time it has nothing left to send.
        feed = MqttFeed(broker, tmp_path, None)
        feed.start()
        _publish(mosquitto.address, _numbered(topic, range(400, 400 + more)))
        _until(lambda expected=700 + more: len(_landed(tmp_path)) >= expected)  # type: ignore[misc]
        feed.stop()
    assert Counter(_landed(tmp_path)) == {n: 2 if n < 300 else 1 for n in range(410)}
    files = list(tmp_path.glob("[0-9]*.arrow"))
    assert len({file.name.split("-")[0] for file in files}) == len(files)


def test_a_broker_that_is_killed_is_waited_for(topic: str, tmp_path: Path) -> None:
    with running("mosquitto") as own:
        marker = OutageMarker(LocalStorage(tmp_path / "flow"), "source.plant", "MQTT broker")
        feed = MqttFeed(Broker(own.address, (topic,)), tmp_path / "landing", None, lambda: [marker])
        feed.start()
        own.kill()
        _until(lambda: bool(outages(LocalStorage(tmp_path / "flow"))))
        own.start()
        _until(lambda: not outages(LocalStorage(tmp_path / "flow")))
        _publish(own.address, [(topic, b'{"id": 1}')])
        _until(lambda: 1 in _landed(tmp_path / "landing"))
        feed.stop()


def test_two_drivers_that_fight_for_one_session_lose_nothing(mosquitto: Service, topic: str, tmp_path: Path) -> None:
    broker = Broker(mosquitto.address, (f"{topic}/+",))
    feeds = [MqttFeed(broker, tmp_path, None), MqttFeed(broker, tmp_path, None)]
    for feed in feeds:
        feed.start()
    for first in range(0, 200, 50):
        _publish(mosquitto.address, _numbered(topic, range(first, first + 50)))
        time.sleep(0.3)
    _until(lambda: set(_landed(tmp_path)) == set(range(200)))
    for feed in feeds:
        feed.stop()


def test_a_wrong_password_is_an_error_that_does_not_tell_it(tmp_path: Path) -> None:
    [port] = free_ports([ANY])
    settings = tmp_path / "mosquitto.conf"
    settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous false\n")
    with subprocess.Popen([program("mosquitto", package="mosquitto"), "-c", str(settings)]) as closed:
        try:
            _until(lambda: not is_free(port))
            with pytest.raises(hr.HeadraceError) as raised:
                Broker(f"127.0.0.1:{port}", ("plant",), "ann", "hunter2").check()
        finally:
            closed.terminate()
    assert raised.value.id == "SOURCE_REFUSED"
    assert "hunter2" not in str(raised.value)


@pytest.mark.spark
def test_a_thousand_messages_of_two_topics_arrive_exactly_and_a_restart_goes_on(
    mosquitto: Service, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    @hr.pipeline(name="plant")
    def plant(spark: SparkSession) -> None:
        messages = read_mqtt(
            spark,
            [f"{topic}/0", f"{topic}/1"],
            servers=mosquitto.address,
            schema="id BIGINT, _topic STRING, _timestamp TIMESTAMP",
            name="messages",
        )
        hr.write("plant", messages, hr.to_memory(topic))

    def run() -> None:
        plant.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)

    run()  # from now on the broker keeps messages for this checkpoint
    broken = [(f"{topic}/1", b"?") for _ in range(10)]
    _publish(mosquitto.address, [*_numbered(topic, range(990)), *broken, (f"{topic}/2", b'{"id": 0}')])
    run()
    rows = hr.memory(topic)
    assert sorted((row["id"], row["_topic"]) for row in rows) == [(n, f"{topic}/{n % 2}") for n in range(990)]
    letters = read_parquet(sorted((tmp_path / "checkpoint" / "plant" / "dead_letters").glob("*/*.parquet")))
    assert letters.height == 10
    assert all(detail.endswith(f"(topic {topic}/1)") for detail in letters["detail"])
    _publish(mosquitto.address, _numbered(topic, range(990, 1000)))
    run()
    assert sorted(row["id"] for row in hr.memory(topic)) == list(range(1000))
