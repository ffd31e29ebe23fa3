"""Processes identified by id and start time, because ids are reused."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

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
