"""Redis: every change in an append-only file, synced each second."""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headrace.services.ports import ANY, HOST
from headrace.services.programs import program
from headrace.services.server import Command, Place


@dataclass(frozen=True, slots=True)
class Redis:
    """A Redis server without password."""

    name: ClassVar[str] = "redis"
    ports: ClassVar[tuple[range, ...]] = (ANY,)
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def prepare(self, place: Place) -> None:
        """Nothing: all settings are in the command."""

    def command(self, place: Place) -> Command:
        """What to run."""
        settings = {
            "port": str(place.port),
            "bind": HOST,
            "dir": str(place.data),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        arguments = [text for name, value in settings.items() for text in (f"--{name}", value)]
        return Command((program("redis-server", package="redis-server"), *arguments))

    def is_ready(self, place: Place) -> bool:
        """It answers a ping; while it loads its file it answers that it is loading."""
        try:
            with socket.create_connection((HOST, place.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def url(self, place: Place) -> str:
        """How clients name it."""
        return f"redis://{place.address}/0"

    def dsn(self, place: Place) -> str:
        """The same: it has no password."""
        return self.url(place)

    def secret_file(self, place: Place) -> Path | None:
        """It has no password."""
        return None
