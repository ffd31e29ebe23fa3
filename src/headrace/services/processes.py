"""Processes known by their id and the time of their start, because an id alone is given out again."""

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
class Process:
    """One process of this machine; ``started`` is in clock ticks since the machine's own start."""

    pid: int
    started: int

    def is_alive(self) -> bool:
        """Whether it still runs; a child of ours that has ended is also cleared away."""
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return known(self.pid) == self

    def children(self) -> list[Process]:
        """The processes that it and they have started, whatever session those have gone to."""
        try:
            found = [known(child.pid) for child in psutil.Process(self.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        return [child for child in found if child is not None]

    def end(self, wanted: signal.Signals, patience: float) -> None:
        """Ask it to end; after ``patience`` seconds end it and its children without asking."""
        self._send(wanted)
        if not self._ends_within(patience):
            self.kill()

    def kill(self) -> None:
        """End it and all its children at once, and return when they are gone."""
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


def known(pid: int) -> Process | None:
    """The process that has this id now; None when there is none, or only what is left of one that ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    # A process that was killed counts as ended when its last thread has: until then it holds its ports and files.
    return None if state in "ZX" and threads <= 1 else Process(pid, started)
