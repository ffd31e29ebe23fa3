"""Starts a system on a case's files and measures it from outside: batches, memory, time to the first result."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class System:
    """A system and how it is run; ``share`` says of how many keys it is given one."""

    name: str
    share: int = 1
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run showed."""

    seconds: tuple[float, ...]
    """What each batch that had rows took."""
    start: float
    """Seconds from the start of the process to the first result; only Headrace's runs tell."""
    memory: int
    """The most bytes that all processes of the run held together."""
    digest: list[str] | None


@dataclass(frozen=True, slots=True)
class Watch:
    """What is watched in a run besides the time of its batches; watching costs, so it is off in timed runs."""

    digest: bool = False
    memory: bool = False


TIME_ONLY = Watch()


def run(system: System, folder: Path, batches: int, watch: Watch = TIME_ONLY, *, timeout: int = 900) -> Measured:
    """Run a system once over the files of a folder, with a fresh process and a fresh checkpoint."""
    work = Path(tempfile.mkdtemp(prefix="run-", dir=folder.parent))
    order = {
        "system": system.name,
        "folder": str(folder),
        "checkpoint": str(work / "checkpoint"),
        "result": str(work / "result.json"),
        "share": system.share,
        "settings": {"spark.local.dir": str(work / "spark"), **system.settings},
        "digest": watch.digest,
    }
    try:
        began = time.time()
        command = [sys.executable, "-m", "benchmarks.wheel.measured_run", json.dumps(order)]
        with (work / "output.txt").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            memory = _Memory(process.pid) if watch.memory else None
            try:
                status = process.wait(timeout)
            finally:
                process.kill()
                if memory is not None:
                    memory.stop()
        if status != 0:
            raise RuntimeError(f"{system.name} failed:\n{(work / 'output.txt').read_text()[-3000:]}")
        result = json.loads((work / "result.json").read_text())
    finally:
        shutil.rmtree(work, ignore_errors=True)
    seconds = tuple(result["seconds"][:batches])
    start = math.nan if result["first_result"] is None else result["first_result"] - began
    return Measured(seconds, start, 0 if memory is None else memory.most, result["digest"])


class _Memory:
    """Samples the memory of a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        self.most = 0
        self._root = psutil.Process(pid)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._stopped.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self.most = max(self.most, memory_of(self._root))


def memory_of(root: psutil.Process) -> int:
    """The bytes that a process and all its descendants hold together: shared pages are counted once."""
    try:
        return sum(_held(process) for process in (root, *root.children(recursive=True)))
    except psutil.NoSuchProcess:
        return 0


def _held(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, OSError):
        return 0
