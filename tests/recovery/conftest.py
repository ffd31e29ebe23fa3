"""Starting, killing and reading the job of ``job.py``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import psutil
import pytest

from headrace.sources.generator import Payments

JOB = Path(__file__).with_name("job.py")


@dataclass(frozen=True, slots=True)
class Job:
    """One place with input, checkpoint and output, over which the job is run again and again."""

    root: Path

    @property
    def log(self) -> Path:
        """The flow's own log, which tells how far the job has come."""
        return self.root / "checkpoint" / "spend" / "log"

    def write_input(self, payments: Payments, *, truth: Path, **written: object) -> None:
        """Generate the input files, with times of modification that keep Spark reading them in order."""
        payments.write(self.root / "in", truth=truth, **written)  # type: ignore[arg-type]
        for number, file in enumerate(sorted((self.root / "in").iterdir())):
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """The job in a session of its own; nothing of it is left afterwards, whatever happens in between."""
        with (self.root / "output.txt").open("ab") as output:
            command = [sys.executable, str(JOB), str(self.root), *arguments]
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
            try:
                yield process
            finally:
                kill_session(process)

    def run(self, *arguments: str) -> int:
        """Run to the end (or to the failpoint); the exit code, negative for a signal."""
        with self.running(*arguments) as process:
            return process.wait(timeout=120)

    def said(self) -> str:
        """The end of everything the job has printed."""
        return (self.root / "output.txt").read_text(errors="replace")[-4000:]

    def listed(self, output: str) -> pl.DataFrame:
        """The rows of an output that count: those of the files its commit list names, with their batch."""
        folder = self.root / output
        frames = []
        for commit in sorted((folder / "_commits").glob("*.json")):
            listing = json.loads(commit.read_text())
            rows = pl.concat([pl.read_parquet(folder / file) for file in listing["files"]])
            assert rows.height == listing["rows"]
            frames.append(rows.with_columns(pl.lit(int(commit.stem[-10:])).alias("in_batch")))
        return pl.concat(frames)


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a process group, and Spark's Python workers, which leave it for a group of their own."""
    members = []
    for each in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getsid(each.pid) == process.pid:
                members.append(each.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for member in members:
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="session")
def new_job(tmp_path_factory: pytest.TempPathFactory) -> type:
    """A function that makes a job with nothing in it yet."""

    def make(name: str) -> Job:
        return Job(tmp_path_factory.mktemp(name))

    return make  # type: ignore[return-value]
