"""A Redis server for development and tests."""

from __future__ import annotations

from typing import ClassVar

from headrace.services.server import HOST, answers, program
from headrace.services.service import Service


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
