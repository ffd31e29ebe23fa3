"""Redis: every change in an append-only file, synced each second."""

from __future__ import annotations

import socket
from typing import ClassVar

from headrace.services.server import HOST, program
from headrace.services.service import Service


class Redis(Service):
    """A Redis server without password."""

    name: ClassVar[str] = "redis"

    def command(self) -> tuple[str, ...]:
        settings = {
            "port": str(self.port),
            "bind": HOST,
            "dir": str(self.data),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        arguments = [text for name, value in settings.items() for text in (f"--{name}", value)]
        return (program("redis-server", package="redis-server"), *arguments)

    def is_ready(self) -> bool:
        """It answers a ping; while it loads its file it answers that it is loading."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    @property
    def url(self) -> str:
        return f"redis://{self.address}/0"
