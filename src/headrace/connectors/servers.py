"""All development servers by name, and those that take only a few lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from headrace.connectors.kafka.server import Connect, Kafka
from headrace.connectors.postgres.server import Postgres
from headrace.errors import HeadraceError
from headrace.services.jars import java_command
from headrace.services.server import ANY, HOST, answers, program
from headrace.services.service import HttpService, Service

# An MQTT 3.1.1 greeting with a clean session and an empty client name, and how its acceptance begins.
GREETING = bytes.fromhex("100c 0004 4d515454 04 02 003c 0000")
ACCEPTED = bytes.fromhex("20020000")


class Redis(Service):
    """A Redis server without password, which syncs every change to an append-only file."""

    name: ClassVar[str] = "redis"
    url_form: ClassVar[str] = "redis://{}/0"

    def command(self) -> tuple[str, ...]:
        where = ("--port", str(self.port), "--bind", HOST, "--dir", str(self.data))
        how = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        return (program("redis-server", package="redis-server"), *where, *how)

    def is_ready(self) -> bool:
        """It answers a ping; while it loads its file it answers that it is loading."""
        return answers(self.port, b"PING\r\n", b"+PONG")


class Mosquitto(Service):
    """An MQTT broker that lets everybody on this machine in and keeps its queues in a file."""

    name: ClassVar[str] = "mosquitto"
    url_form: ClassVar[str] = "mqtt://{}"

    @property
    def _settings(self) -> Path:
        return self.folder / "mosquitto.conf"

    def prepare(self, ports: tuple[int, ...]) -> None:
        settings = {
            "listener": f"{ports[0]} {HOST}",
            "allow_anonymous": "true",
            "persistence": "true",
            "persistence_location": f"{self.data}/",
            # After every change, so that a crash forgets no queued message.
            "autosave_on_changes": "true",
            "autosave_interval": "1",
            "max_queued_messages": "0",
        }
        if os.geteuid() == 0:
            # As root it would become a user of its own, who may not write here.
            settings["user"] = "root"
        self._settings.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))

    def command(self) -> tuple[str, ...]:
        return (program("mosquitto", package="mosquitto"), "-c", str(self._settings))

    def is_ready(self) -> bool:
        return answers(self.port, GREETING, ACCEPTED)


class OpenSearch(HttpService):
    """A cluster of one node, without passwords, from Maven's jars."""

    name: ClassVar[str] = "opensearch"
    # The runner takes no port for clients above 9299. The second one is for talk between nodes.
    port_ranges: ClassVar[tuple[range, ...]] = (range(8_300, 9_200), ANY)
    ready_path: ClassVar[str] = "/_cluster/health?wait_for_status=yellow&timeout=2s"

    def prepare(self, ports: tuple[int, ...]) -> None:
        settings = {
            "network.host": HOST,
            "transport.port": str(ports[1]),
            "discovery.type": "single-node",
            # A development machine's disk is often nearly full, and then nothing could be written.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        folder = self.folder / "config"
        folder.mkdir(exist_ok=True)
        lines = [f"{name}: {json.dumps(value)}\n" for name, value in settings.items()]
        (folder / "opensearch.yml").write_text("".join(lines))

    def command(self) -> tuple[str, ...]:
        where = ("-basePath", str(self.data), "-confPath", str(self.folder / "config"))
        # Nodes are numbered from 1, and each adds its number to the port.
        node = ("-clusterName", "headrace", "-numOfNode", "1", "-baseHttpPort", str(self.port - 1))
        return (*java_command("opensearch"), "org.codelibs.opensearch.runner.OpenSearchRunner", *where, *node)


_KINDS: tuple[type[Service], ...] = (Kafka, Postgres, Redis, Mosquitto, OpenSearch, Connect)
SERVERS = {kind.name: kind for kind in _KINDS}


def service(name: str, folder: Path) -> Service:
    """The server of that name in a subfolder of ``folder``, whether it runs or not.

    >>> service("reddis", Path("services"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    headrace.errors.HeadraceError: [SERVICE_UNKNOWN] there is no service 'reddis'. Known: kafka, postgres, redis, ...
    """
    if name not in SERVERS:
        raise HeadraceError("SERVICE_UNKNOWN", f"there is no service {name!r}. Known: {', '.join(SERVERS)}.")
    return SERVERS[name](folder / name)


@contextmanager
def running(name: str, folder: Path | None = None) -> Iterator[Service]:
    """Run a server for the length of the block; without a folder its data is removed at the end.

    ``with running("kafka") as kafka: ... kafka.address ... kafka.kill() ... kafka.start()``
    """
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="headrace-services-")))
            # PostgreSQL may have to run as another user, who must be able to enter.
            folder.chmod(0o711)
        server = service(name, folder)
        stack.callback(server.stop)
        server.start()
        yield server
