"""Redis: every change in an append-only file, synced each second."""

from __future__ import annotations

import socket
from typing import ClassVar

from headrace.services.server import HOST, Command, Place, ServerKind, program


class Redis(ServerKind):
    """A Redis server without password."""

    __slots__ = ()
    name: ClassVar[str] = "redis"

    def command(self, place: Place) -> Command:
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
        return f"redis://{place.address}/0"
