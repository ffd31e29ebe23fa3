"""Development servers: a real server on this machine, in a folder with its data, its state and its process."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx

from headrace.errors import HeadraceError
from headrace.services import launcher
from headrace.services.server import ANY, HOST, LOOK_SECONDS, ServerProcess, free_ports, is_free
from headrace.storage import write_durably

FILE = "service.json"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """A service that has been set up: its permanent ports, and the process that was started last and not stopped."""

    ports: tuple[int, ...]
    process: ServerProcess | None


READY_SECONDS = 120.0
STOP_SECONDS = 20.0
LOG_LINES = 15


class Service(ABC):
    """A server in its own folder. Any process that knows the folder can query, stop or restart it."""

    name: ClassVar[str]
    port_ranges: ClassVar[tuple[range, ...]] = (ANY,)
    """The range from which each of its ports is chosen; clients use the first port."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """What makes it shut down cleanly without waiting for its clients."""
    url_form: ClassVar[str]
    """Its URL with braces for host and port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.data = self.folder / "data"

    def prepare(self, ports: tuple[int, ...]) -> None:  # noqa: B027 - few prepare
        """Before the first start: write its settings and create its store in the empty folder ``data``."""

    @abstractmethod
    def command(self) -> tuple[str, ...]:
        """The program to run, with its arguments."""

    @property
    def user(self) -> str | None:
        """The user to run it as; None for the current one."""
        return None

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it serves clients."""

    @property
    def url(self) -> str:
        """Its address for clients, without secrets."""
        return self.url_form.format(self.address)

    @property
    def dsn(self) -> str:
        """Its address with its password, if it has one: not for logs."""
        return self.url

    @property
    def secret_file(self) -> Path | None:
        """The file with its password, if it has one; only its owner may read it."""
        return None

    def run_tool(self, what: str, *command: str, **as_user: Any) -> None:
        """Run a program of the server to its end, in its folder."""
        how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "cwd": self.folder, **as_user}
        outcome = subprocess.run(command, check=False, **how)
        if outcome.returncode != 0:
            raise HeadraceError("SERVICE_FAILED", f"{self.name} could not {what}: {outcome.stderr.strip()}")

    @property
    def ports(self) -> tuple[int, ...]:
        known = self._read_state()
        if known is None:
            raise HeadraceError(
                "SERVICE_NOT_STARTED", f"{self.name} was never started in {self.folder}. Start it first."
            )
        return known.ports

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def address(self) -> str:
        """Where it listens, as ``127.0.0.1:20123``."""
        return f"{HOST}:{self.port}"

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
        known = self._read_state()
        if known is None:
            return "absent"
        if known.process is None:
            return "stopped"
        return "running" if known.process.is_alive() else "died"

    def is_running(self) -> bool:
        return self._process() is not None

    def start(self) -> bool:
        """Start it with its port and data and return when it serves clients; False when it was running already."""
        with self._alone():
            running = self._process()
            if running is not None:
                # Whoever started it may have been interrupted before it was ready.
                self._wait_until_ready(running)
                return False
            self._set_up()
            self._require_ports()
            process = self._launch()
            try:
                self._wait_until_ready(process)
            except BaseException:
                process.kill()
                raise
            return True

    def stop(self) -> bool:
        """Shut it down cleanly, by force when that takes too long; returns False when it was not running."""
        with self._alone():
            process = self._process()
            if process is not None:
                process.end(self.stop_signal, STOP_SECONDS)
            if self._read_state() is not None:
                self._write_state(self.ports)
            return process is not None

    def kill(self) -> None:
        """End its processes at once, as a crash would (SIGKILL)."""
        process = self._process()
        if process is not None:
            process.kill()

    def _process(self) -> ServerProcess | None:
        known = self._read_state()
        process = None if known is None else known.process
        return process if process is not None and process.is_alive() else None

    def _read_state(self) -> ServiceState | None:
        """The state in its folder; None if nothing was ever set up there."""
        file = self.folder / FILE
        try:
            fields = json.loads(file.read_text(encoding="utf-8"))
            process = ServerProcess(fields["pid"], fields["started"]) if "pid" in fields else None
            return ServiceState(tuple(fields["ports"]), process)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise HeadraceError(
                "SERVICE_STATE",
                f"{file} is not what Headrace writes ({error!r}). Stop the server by hand and remove the folder.",
            ) from error

    def _write_state(self, ports: tuple[int, ...]) -> None:
        """Store its state without a process, which the launcher adds when there is one."""
        state = {"name": self.name, "folder": str(self.folder), "ports": ports}
        write_durably(self.folder / FILE, json.dumps(state))

    def _set_up(self) -> None:
        if self._read_state() is not None:
            return
        ports = free_ports(self.port_ranges)
        # Without a state an earlier set-up was interrupted; its data cannot be trusted.
        if self.data.exists():
            shutil.rmtree(self.data)
        self.data.mkdir()
        self.prepare(ports)
        self._write_state(ports)

    def _require_ports(self) -> None:
        taken = [port for port in self.ports if not is_free(port)]
        if taken:
            raise HeadraceError(
                "SERVICE_PORT_TAKEN",
                f"another program listens on port {taken[0]}, which belongs to {self.name} in {self.folder}. "
                "Stop that program, or remove the folder to start afresh on another port.",
            )

    def _launch(self) -> ServerProcess:
        command, user = self.command(), self.user or ""
        # Forget the predecessor, whose process id the new process could get.
        self._write_state(self.ports)
        script = [sys.executable, "-I", "-S", launcher.__file__, str(self.folder), user]
        # Its own session: it outlives the terminal and the command that started it.
        pid = os.posix_spawn(sys.executable, [*script, *command], os.environ, setsid=True)
        while True:
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
            known = self._read_state()
            if known is not None and known.process is not None and known.process.pid == pid:
                return known.process
            if ended:
                raise self._failed("could not be started")
            time.sleep(LOOK_SECONDS)

    def _wait_until_ready(self, process: ServerProcess) -> None:
        until = time.monotonic() + READY_SECONDS
        while not self.is_ready():
            if not process.is_alive():
                raise self._failed("ended while it was starting")
            if time.monotonic() > until:
                raise self._failed(f"was not ready after {READY_SECONDS:.0f} seconds")
            time.sleep(LOOK_SECONDS)

    def _failed(self, how: str) -> HeadraceError:
        log = self.folder / "log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        tail = [line for line in lines if not line.startswith("\tat ")][-LOG_LINES:]
        return HeadraceError("SERVICE_FAILED", "\n  ".join([f"{self.name} {how}. Its log {log} ends:", *tail]))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A lock, so that two commands at once do not start or stop one server twice."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class HttpService(Service):
    """A server that is ready when it answers a request with 200."""

    url_form: ClassVar[str] = "http://{}"
    ready_path: ClassVar[str]

    def is_ready(self) -> bool:
        try:
            return httpx.get(self.url + self.ready_path, timeout=5, trust_env=False).is_success
        except httpx.TransportError:
            return False
