"""Development servers: a real server on this machine, in a folder with its data, its state and its process."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from headrace.errors import HeadraceError
from headrace.services import launcher
from headrace.services.server import Place, ServerKind, free_ports, is_free
from headrace.storage import write_durably

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
        """Its children and theirs, in whatever session."""
        try:
            found = [known(child.pid) for child in psutil.Process(self.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        return [child for child in found if child is not None]

    def end(self, wanted: signal.Signals, patience: float) -> None:
        """Send a signal; after ``patience`` seconds kill it and its children."""
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


FILE = "service.json"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """A service that has been set up: its permanent ports, and the process that was started last and not stopped."""

    name: str
    ports: tuple[int, ...]
    process: ServerProcess | None = None

    def write(self, folder: Path) -> None:
        fields: dict[str, object] = {"name": self.name, "folder": str(folder), "ports": self.ports}
        if self.process is not None:
            fields |= {"pid": self.process.pid, "started": self.process.started}
        write_durably(folder / FILE, json.dumps(fields))


def read_state(folder: Path) -> ServiceState | None:
    """The state in a service's folder; None if nothing was ever set up there."""
    try:
        fields = json.loads((folder / FILE).read_text(encoding="utf-8"))
        process = ServerProcess(fields["pid"], fields["started"]) if "pid" in fields else None
        return ServiceState(fields["name"], tuple(fields["ports"]), process)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise HeadraceError(
            "SERVICE_STATE",
            f"{folder / FILE} is not what Headrace writes ({error!r}). Stop the server by hand and remove the folder.",
        ) from error


READY_SECONDS = 120.0
STOP_SECONDS = 20.0
LOG_LINES = 15


class Service:
    """A server in its own folder. Any process that knows the folder can query, stop or restart it."""

    def __init__(self, server: ServerKind, folder: Path) -> None:
        self._server = server
        self.name = server.name
        self.folder = folder.absolute()

    @property
    def address(self) -> str:
        """Where it listens, as ``127.0.0.1:20123``."""
        return self._place().address

    @property
    def port(self) -> int:
        return self._place().port

    @property
    def url(self) -> str:
        return self._server.url(self._place())

    @property
    def dsn(self) -> str:
        """Its address with its password, if it has one: not for logs."""
        return self._server.dsn(self._place())

    @property
    def secret_file(self) -> Path | None:
        """The file with its password, if it has one; only its owner may read it."""
        return self._server.secret_file(self._place())

    @property
    def pid(self) -> int | None:
        """Its process id; None when it does not run."""
        process = self._process()
        return None if process is None else process.pid

    @property
    def state(self) -> str:
        """``running``, ``stopped``, ``died`` (it ended by itself) or ``absent`` (never started).

        >>> from headrace.connectors.servers import service
        >>> service("redis", Path("no/such/folder")).state
        'absent'
        """
        known = read_state(self.folder)
        if known is None:
            return "absent"
        if known.process is None:
            return "stopped"
        return "running" if known.process.is_alive() else "died"

    def is_running(self) -> bool:
        return self._process() is not None

    def start(self) -> bool:
        """Start it on the same port and with the same data as before; return when it serves clients.

        Returns False when it was running already.
        """
        with self._alone():
            running = self._process()
            if running is not None:
                # Whoever started it may have been interrupted before it was ready.
                self._wait_until_ready(self._place(), running)
                return False
            place = self._prepared()
            self._require_ports(place)
            process = self._launch(place)
            try:
                self._wait_until_ready(place, process)
            except BaseException:
                process.kill()
                raise
            return True

    def stop(self) -> bool:
        """Shut it down cleanly, by force when that takes too long; returns False when it was not running."""
        with self._alone():
            process = self._process()
            if process is not None:
                process.end(self._server.stop_signal, STOP_SECONDS)
            known = read_state(self.folder)
            if known is not None:
                ServiceState(known.name, known.ports).write(self.folder)
            return process is not None

    def kill(self) -> None:
        """End its processes at once, as a crash would (SIGKILL)."""
        process = self._process()
        if process is not None:
            process.kill()

    def _process(self) -> ServerProcess | None:
        known = read_state(self.folder)
        process = None if known is None else known.process
        return process if process is not None and process.is_alive() else None

    def _place(self) -> Place:
        known = read_state(self.folder)
        if known is None:
            raise HeadraceError(
                "SERVICE_NOT_STARTED", f"{self.name} was never started in {self.folder}. Start it first."
            )
        return Place(self.folder, known.ports)

    def _prepared(self) -> Place:
        known = read_state(self.folder)
        if known is not None:
            return Place(self.folder, known.ports)
        place = Place(self.folder, free_ports(self._server.ports))
        # Without a state an earlier set-up was interrupted; its data cannot be trusted.
        if place.data.exists():
            shutil.rmtree(place.data)
        place.data.mkdir()
        self._server.prepare(place)
        ServiceState(self.name, place.ports).write(self.folder)
        return place

    def _require_ports(self, place: Place) -> None:
        taken = [port for port in place.ports if not is_free(port)]
        if taken:
            raise HeadraceError(
                "SERVICE_PORT_TAKEN",
                f"another program listens on port {taken[0]}, which belongs to {self.name} in {self.folder}. "
                "Stop that program, or remove the folder to start anew on another port.",
            )

    def _launch(self, place: Place) -> ServerProcess:
        command = self._server.command(place)
        # Forget the predecessor, whose process id the new process could get.
        ServiceState(self.name, place.ports).write(self.folder)
        script = [sys.executable, "-I", "-S", launcher.__file__, str(self.folder), command.user or ""]
        # Its own session: it outlives the terminal and the command that started it.
        pid = os.posix_spawn(sys.executable, [*script, *command.arguments], os.environ, setsid=True)
        while True:
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
            known = read_state(self.folder)
            if known is not None and known.process is not None and known.process.pid == pid:
                return known.process
            if ended:
                raise self._failed("could not be started")
            time.sleep(LOOK_SECONDS)

    def _wait_until_ready(self, place: Place, process: ServerProcess) -> None:
        until = time.monotonic() + READY_SECONDS
        while not self._server.is_ready(place):
            if not process.is_alive():
                raise self._failed("ended while it was starting")
            if time.monotonic() > until:
                raise self._failed(f"was not ready after {READY_SECONDS:.0f} seconds")
            time.sleep(LOOK_SECONDS)

    def _failed(self, how: str) -> HeadraceError:
        log = self.folder / "log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        told = [line for line in lines if not line.startswith("\tat ")][-LOG_LINES:]
        return HeadraceError("SERVICE_FAILED", "\n  ".join([f"{self.name} {how}. Its log {log} ends:", *told]))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A lock, so that two commands at once do not start or stop one server twice."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
