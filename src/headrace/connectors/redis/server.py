"""Redis: every change is synced to an append-only file."""

from __future__ import annotations

from typing import ClassVar

from headrace.services.server import HOST, answers, program
from headrace.services.service import Service


class Redis(Service):
    """A Redis server without password."""

    name: ClassVar[str] = "redis"
    url_form: ClassVar[str] = "redis://{}/0"

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
        return answers(self.port, b"PING\r\n", b"+PONG")
