"""What development servers need of this machine: ports, programs and processes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

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


def answers(port: int, greeting: bytes, answer: bytes) -> bool:
    """Whether the answer of the server at a port begins as it should."""
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(greeting)
            return connection.recv(len(answer)) == answer
    except OSError:
        return False


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


LOOK_SECONDS = 0.02
GONE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A process of this machine; ``started`` is in clock ticks since the machine booted."""

    pid: int
    started: int

    def is_alive(self) -> bool:
        """Whether it still runs; also reaps it if it is an ended child of ours."""
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return known(self.pid) == self

    def children(self) -> list[ServerProcess]:
        with suppress(psutil.NoSuchProcess):
            found = [known(child.pid) for child in psutil.Process(self.pid).children(recursive=True)]
            return [child for child in found if child is not None]
        return []

    def end(self, wanted: signal.Signals, patience: float) -> None:
        self._send(wanted)
        if not self._ends_within(patience):
            self.kill()

    def kill(self) -> None:
        """Kill it and all its children, and return when they are gone."""
        if not self.is_alive():
            return
        everybody = [self, *self.children()]
        for process in everybody:
            process._send(signal.SIGKILL)
        for process in everybody:
            process._ends_within(GONE_SECONDS)

    def _send(self, wanted: signal.Signals) -> None:
        # It may end between the look and the signal.
        with suppress(ProcessLookupError):
            if self.is_alive():
                os.kill(self.pid, wanted)

    def _ends_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.is_alive():
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_SECONDS)
        return True


def known(pid: int) -> ServerProcess | None:
    """The process that has this id now; None if there is none, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    # A process that was killed counts as ended when its last thread has: until then it holds its ports and files.
    return None if state in "ZX" and threads <= 1 else ServerProcess(pid, started)
