"""What distinguishes one kind of server from another."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Place:
    """Where one server lives: its folder, and its ports on the loopback address."""

    folder: Path
    ports: tuple[int, ...]

    @property
    def data(self) -> Path:
        """Everything that the server itself stores."""
        return self.folder / "data"

    @property
    def port(self) -> int:
        """The port that clients use."""
        return self.ports[0]

    @property
    def address(self) -> str:
        """What clients connect to.

        >>> Place(Path("somewhere"), (20123,)).address
        '127.0.0.1:20123'
        """
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, and the user to run it as (None: whoever starts it)."""

    arguments: tuple[str, ...]
    user: str | None = None


class Server(Protocol):
    """One kind of server: how to set it up, run it and know that it is ready."""

    @property
    def name(self) -> str:
        """Its name in the command."""

    @property
    def ports(self) -> tuple[range, ...]:
        """The ports it needs, the one that clients use first: out of which range each is to be chosen."""

    @property
    def stop_signal(self) -> signal.Signals:
        """What makes it end in good order without waiting for its clients."""

    def prepare(self, place: Place) -> None:
        """Before the first start: write its settings and create its store in the empty ``place.data``."""

    def command(self, place: Place) -> Command:
        """What to run."""

    def is_ready(self, place: Place) -> bool:
        """Whether it does what clients ask for."""

    def url(self, place: Place) -> str:
        """How clients name it; never holds a secret."""

    def dsn(self, place: Place) -> str:
        """The same with everything that a client needs to get in, its password too."""

    def secret_file(self, place: Place) -> Path | None:
        """The file with its password, if it has one."""
