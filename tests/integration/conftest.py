"""A landing folder and payments to put into it; a proxy that cuts connections."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SCHEMA = "id STRING, account STRING, amount BIGINT, at TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Place:
    """Everything of one test: a landing folder, outputs and a checkpoint."""

    root: Path

    @property
    def landing(self) -> Path:
        """The folder that the pipeline reads."""
        return self.root / "in"

    @property
    def checkpoint(self) -> Path:
        """The pipeline's checkpoint."""
        return self.root / "checkpoint"

    def land(self, name: str, *rows: tuple[str, str, int, str] | str) -> None:
        """Put a file with payments (id, account, amount, time of 1 January 2025) or raw lines there, whole."""
        lines = []
        for row in rows:
            if isinstance(row, str):
                lines.append(row)
            else:
                identity, account, amount, clock = row
                payment = {"id": identity, "account": account, "amount": amount, "at": f"2025-01-01T{clock}Z"}
                lines.append(json.dumps(payment))
        hidden = self.landing / f".{name}"
        hidden.write_text("\n".join(lines) + "\n")
        order = 1_700_000_000 + len(list(self.landing.iterdir()))
        os.utime(hidden, (order, order))
        hidden.rename(self.landing / f"{name}.json")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty place."""
    place = Place(tmp_path)
    place.landing.mkdir()
    return place


class CuttingProxy:
    """Stands before a server on this machine and cuts a connection when the client says certain words."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.cuts = 0
        self._words: bytes | None = None
        self._forward = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at(self, words: bytes, *, forward: bool) -> None:
        """Cut at the next occurrence of the words: before they reach the server or, forwarded, before its answer."""
        self._words, self._forward = words, forward

    def close(self) -> None:
        """Take no more connections."""
        # Closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.server_port)) as server:
            answers_stop = threading.Event()
            answers = threading.Thread(target=self._pass_answers, args=(server, client, answers_stop), daemon=True)
            answers.start()
            with contextlib.suppress(OSError):
                while said := client.recv(65536):
                    words = self._words
                    if words is None or words not in said:
                        server.sendall(said)
                        continue
                    self._words = None
                    self.cuts += 1
                    answers_stop.set()
                    if self._forward:
                        server.sendall(said)
                        # The server has done it once the answer has come, which the client shall never see.
                        answers.join(5)
                    break
            for side in (client, server):
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
            answers.join(5)

    def _pass_answers(self, server: socket.socket, client: socket.socket, stop: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (said := server.recv(65536)) and not stop.is_set():
                client.sendall(said)
            if not said:
                client.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cutting_proxy() -> Iterator[Callable[[int], CuttingProxy]]:
    """Makes proxies before servers, by the server's port."""
    proxies: list[CuttingProxy] = []

    def before(server_port: int) -> CuttingProxy:
        proxies.append(CuttingProxy(server_port))
        return proxies[-1]

    yield before
    for proxy in proxies:
        proxy.close()
