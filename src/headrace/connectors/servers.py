"""All development servers by name."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.connectors.debezium.server import Connect
from headrace.connectors.kafka.server import Kafka
from headrace.connectors.mqtt.server import Mosquitto
from headrace.connectors.opensearch.server import OpenSearch
from headrace.connectors.postgres.server import Postgres
from headrace.connectors.redis.server import Redis
from headrace.errors import HeadraceError
from headrace.services.server import ServerKind
from headrace.services.service import Service

ALL: tuple[ServerKind, ...] = (Kafka(), Postgres(), Redis(), Mosquitto(), OpenSearch(), Connect())
SERVERS = {server.name: server for server in ALL}


def service(name: str, folder: Path) -> Service:
    """The server of that name in a subfolder of ``folder``, whether it runs or not.

    >>> service("reddis", Path("services"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    headrace.errors.HeadraceError: [SERVICE_UNKNOWN] there is no service 'reddis'. Known: kafka, postgres, redis, ...
    """
    if name not in SERVERS:
        raise HeadraceError("SERVICE_UNKNOWN", f"there is no service {name!r}. Known: {', '.join(SERVERS)}.")
    return Service(SERVERS[name], folder / name)


@contextmanager
def running(name: str, folder: Path | None = None) -> Iterator[Service]:
    """Run a server for the length of the block; without a folder its data is removed at the end.

    ``with running("kafka") as kafka: ... kafka.address ... kafka.kill() ... kafka.start()``
    """
    if folder is not None:
        yield from _started(service(name, folder))
        return
    passing = Path(tempfile.mkdtemp(prefix="headrace-services-"))
    # PostgreSQL may have to run as another user, who must be able to enter.
    passing.chmod(0o711)
    try:
        yield from _started(service(name, passing))
    finally:
        shutil.rmtree(passing)


def _started(server: Service) -> Iterator[Service]:
    try:
        server.start()
        yield server
    finally:
        server.stop()
