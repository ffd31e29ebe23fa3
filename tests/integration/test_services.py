"""Real servers: they start, are ready, keep their data over a crash, and obey from another process."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import paho.mqtt.client as mqtt
import psycopg
import pytest
import redis
from confluent_kafka import Producer
from paho.mqtt.enums import CallbackAPIVersion

from headrace.connectors.servers import running, service
from headrace.services.server import known
from headrace.services.service import Service
from tests.topics import create_topic, messages

Use = Callable[[Service], object]


def write_kafka(kafka: Service) -> None:
    create_topic(kafka.address, "notes", 1)
    settings = {"bootstrap.servers": kafka.address, "transactional.id": "writer", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("notes", value=b"kept")
    producer.commit_transaction(20)


def read_kafka(kafka: Service) -> object:
    [(_, value)] = messages(kafka.address, "notes")
    return value


def write_postgres(postgres: Service) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("create table notes (text text)")
        connection.execute("insert into notes values ('kept')")


def read_postgres(postgres: Service) -> object:
    with psycopg.connect(postgres.url) as connection:
        return connection.execute("select text, current_setting('wal_level') from notes").fetchone()


def write_redis(server: Service) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.set("note", "kept")


def read_redis(server: Service) -> object:
    with redis.Redis.from_url(server.url) as client:
        return client.get("note")


def mqtt_client(broker: Service) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="test")
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    return client


def write_mosquitto(broker: Service) -> None:
    client = mqtt_client(broker)
    client.publish("note", b"kept", qos=1, retain=True).wait_for_publish(60)
    client.disconnect()
    client.loop_stop()
    # It saves its queues at most once a second.
    store = broker.folder / "data" / "mosquitto.db"
    until = time.monotonic() + 60
    while not store.exists() and time.monotonic() < until:
        time.sleep(0.05)


def read_mosquitto(broker: Service) -> object:
    seen: list[bytes] = []
    client = mqtt_client(broker)
    client.on_message = lambda client, data, message: seen.append(bytes(message.payload))
    client.subscribe("note", qos=1)
    until = time.monotonic() + 60
    while not seen and time.monotonic() < until:
        time.sleep(0.02)
    client.disconnect()
    client.loop_stop()
    return seen


def write_opensearch(server: Service) -> None:
    answer = httpx.put(
        f"{server.url}/notes/_doc/1?version=7&version_type=external_gte", json={"text": "kept"}, timeout=60
    )
    assert answer.status_code == httpx.codes.CREATED


def read_opensearch(server: Service) -> object:
    return httpx.get(f"{server.url}/notes/_doc/1", timeout=60).json()["_source"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "write", "read", "kept"),
    [
        ("kafka", write_kafka, read_kafka, b"kept"),
        ("postgres", write_postgres, read_postgres, ("kept", "logical")),
        ("redis", write_redis, read_redis, b"kept"),
        ("mosquitto", write_mosquitto, read_mosquitto, [b"kept"]),
        ("opensearch", write_opensearch, read_opensearch, {"text": "kept"}),
    ],
)
def test_after_kill_9_a_server_is_back_with_its_port_and_data(name: str, write: Use, read: Use, kept: object) -> None:
    with running(name) as server:
        port, pid = server.port, server.pid
        write(server)
        server.kill()
        assert server.state == "died"
        server.start()
        assert server.port == port
        assert server.pid != pid
        assert read(server) == kept
        last, folder = server.pid, server.folder
    assert last is not None
    assert known(last) is None
    assert not folder.exists()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that PostgreSQL's user may enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def headrace(*arguments: str, folder: Path) -> str:
    """Run the command in a process of its own, and return what it printed."""
    command = [str(Path(sys.executable).with_name("headrace")), "services", *arguments, "--folder", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_command_starts_shows_and_stops_servers_of_another_process(open_folder: Path) -> None:
    try:
        said = headrace("up", "postgres", "redis", folder=open_folder)
        shown = {found["name"]: found for found in json.loads(headrace("status", "--json", folder=open_folder))}
        assert set(shown) == {"postgres", "redis"}
        assert all(found["state"] == "running" for found in shown.values())
        with redis.Redis.from_url(shown["redis"]["url"]) as client:
            assert client.ping()
        with psycopg.connect(shown["postgres"]["url"]) as connection:
            assert connection.execute("select 1").fetchone() == (1,)

        secret = Path(shown["postgres"]["password_file"])
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        password = secret.read_text().strip().split(":")[-1]
        assert str(secret) in said
        assert password not in said

        assert headrace("down", "redis", folder=open_folder) == "redis stopped\n"
        assert service("redis", open_folder).state == "stopped"
        assert service("postgres", open_folder).is_running()
    finally:
        for name in ("postgres", "redis"):
            service(name, open_folder).stop()
