"""All development servers by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.connectors.kafka.server import Connect, Kafka
from headrace.connectors.mqtt.server import Mosquitto
from headrace.connectors.opensearch.server import OpenSearch
from headrace.connectors.postgres.server import Postgres
from headrace.connectors.redis.server import Redis
from headrace.errors import HeadraceError
from headrace.services.service import Service

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
