"""Kinds of development servers: how to set one up, run it, and know that it is ready."""

from __future__ import annotations

import http.client
import os
import random
import shutil
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headrace.errors import HeadraceError

HOST = "127.0.0.1"
# Below Linux's range for outgoing connections: otherwise one of them could take the port of a server that is down, and
# a client that keeps reconnecting can even connect to itself.
ANY = range(20_000, 32_000)
TRIES = 1_000


def free_ports(ranges: Sequence[range]) -> tuple[int, ...]:
    """Distinct ports that are free now, one from each range.

    >>> len(set(free_ports([ANY, ANY, ANY])))
    3
    """
    found: list[int] = []
    for wanted in ranges:
        candidates = (random.choice(wanted) for _ in range(TRIES))
        port = next((port for port in candidates if port not in found and is_free(port)), None)
        if port is None:
            raise HeadraceError(
                "NO_FREE_PORT", f"no free port was found in {wanted.start}-{wanted.stop - 1}. Stop some servers."
            )
        found.append(port)
    return tuple(found)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


SYSTEM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def program(name: str, *, package: str, folders: str = "") -> str:
    """The path of a program in ``folders``, PATH or the system's folders (which a user's PATH may lack)."""
    for path in (folders, os.environ.get("PATH", ""), SYSTEM_FOLDERS):
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    raise HeadraceError(
        "SERVICE_MISSING", f"the program {name!r} is not installed. Install it: apt-get install {package}"
    )


def java() -> str:
    """The Java that JAVA_HOME names, or the first on PATH."""
    home = os.environ.get("JAVA_HOME")
    inside = "" if home is None else str(Path(home) / "bin")
    return program("java", package="openjdk-17-jre-headless", folders=inside)


@dataclass(frozen=True, slots=True)
class Place:
    """A server's folder, and its ports on the loopback address."""

    folder: Path
    ports: tuple[int, ...]

    @property
    def data(self) -> Path:
        """Where the server stores its data."""
        return self.folder / "data"

    @property
    def port(self) -> int:
        """The port that clients use."""
        return self.ports[0]

    @property
    def address(self) -> str:
        """Host and port for clients.

        >>> Place(Path("somewhere"), (20123,)).address
        '127.0.0.1:20123'
        """
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, and the user to run it as (None: the current user)."""

    arguments: tuple[str, ...]
    user: str | None = None


class ServerKind(ABC):
    """One kind of server: how to set it up, run it and know that it is ready."""

    __slots__ = ()
    name: ClassVar[str]
    ports: ClassVar[tuple[range, ...]] = (ANY,)
    """The range from which each of its ports is chosen; clients use the first port."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """What makes it shut down cleanly without waiting for its clients."""

    def prepare(self, place: Place) -> None:  # noqa: B027
        """Before the first start: write its settings and create its store in the empty ``place.data``."""

    @abstractmethod
    def command(self, place: Place) -> Command:
        """What to run."""

    @abstractmethod
    def is_ready(self, place: Place) -> bool:
        """Whether it serves clients."""

    @abstractmethod
    def url(self, place: Place) -> str:
        """Its address for clients, without secrets."""

    def dsn(self, place: Place) -> str:
        """Its address with its password, if it has one."""
        return self.url(place)

    def secret_file(self, place: Place) -> Path | None:
        """The file with its password, if it has one."""
        return None


class HttpServer(ServerKind):
    """A server that is ready when it answers a request with 200."""

    __slots__ = ()
    ready_path: ClassVar[str]

    def is_ready(self, place: Place) -> bool:
        connection = http.client.HTTPConnection(HOST, place.port, timeout=5)
        try:
            connection.request("GET", self.ready_path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def url(self, place: Place) -> str:
        return f"http://{place.address}"
