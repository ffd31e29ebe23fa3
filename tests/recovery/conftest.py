"""Starting, killing and reading the job of ``job.py``."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import psycopg
import pytest
import redis
from confluent_kafka import Producer

from headrace.generator.payments import Payments
from headrace.observe import history
from tests.topics import create_topic, messages

FOLDER = Path(__file__).parent
MINUTE = 60_000_000
PAYMENTS = Payments(seed=21, accounts=50, late=0, disorder="30 seconds", broken=0.01, duplicates=0.01)
START = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Job:
    """One place with input, checkpoint and output, over which the job is run again and again."""

    root: Path
    script: str = "job.py"

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
            command = [sys.executable, str(FOLDER / self.script), str(self.root), *arguments]
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, env=environment())
            try:
                yield process
            finally:
                kill_session(process)

    def run(self, *arguments: str, timeout: float = 600) -> int:
        """Run to the end (or to the failpoint); the exit code, negative for a signal."""
        with self.running(*arguments) as process:
            return process.wait(timeout=timeout)

    def wait_for_a_moment(self, process: subprocess.Popen[bytes], chance: random.Random) -> None:
        """Until one more batch has ended and the next one is anywhere between its beginning and its end."""
        flow = self.log.parent
        before = len(history.read(flow))
        while len(history.read(flow)) == before and process.poll() is None:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 1.2) * self.shortest_batch())

    def shortest_batch(self) -> float:
        """In seconds, about as long as the next one: the first batches of a process take longer."""
        return min(entry.seconds.batch for entry in history.read(self.log.parent))

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
            frames.append(rows.with_columns(pl.lit(listing["batch"]).alias("in_batch")))
        return pl.concat(frames)


def environment() -> dict[str, str]:
    """That of a job, whose Spark workers import its modules too."""
    places = filter(None, (str(FOLDER.parents[1]), os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def members(process: subprocess.Popen[bytes]) -> list[int]:
    """Everything a job has started: Spark's Python workers leave its process group, but not its session."""
    found = []
    for each in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getsid(each.pid) == process.pid:
                found.append(each.pid)
    return found


def _signal_session(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to everything a job has started."""
    for member in members(process):
        with suppress(ProcessLookupError):
            os.kill(member, number)


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill everything a job has started, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _signal_session(process, signal.SIGKILL)
    process.wait()


def _kill_a_worker(process: subprocess.Popen[bytes], chance: random.Random) -> None:
    """Kill one of the processes in which tasks run Python."""
    workers = []
    for member in members(process):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(member).ppid() != process.pid and "worker_daemon" in " ".join(
                psutil.Process(member).cmdline()
            ):
                workers.append(member)
    if workers:
        with suppress(ProcessLookupError):
            os.kill(chance.choice(sorted(workers)), signal.SIGKILL)


FOLLOWING = ("test_changes_kills.py", "test_view_kills.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """To follow a database through kills takes many minutes, so ``make recovery-changes`` asks for it."""
    return True if collection_path.name in FOLLOWING and not config.getoption("changes") else None


@pytest.fixture(scope="session")
def new_job(tmp_path_factory: pytest.TempPathFactory) -> type:
    """A function that makes a job with nothing in it yet."""

    def make(name: str, script: str = "job.py") -> Job:
        return Job(tmp_path_factory.mktemp(name), script)

    return make  # type: ignore[return-value]


@pytest.fixture
def kill_a_worker() -> Callable[..., None]:
    """Kills one of the processes in which a job's tasks run Python."""
    return _kill_a_worker


_REPORTED = pytest.StashKey[list[dict[str, Any]]]()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Takes down what came of a test, for the table at the end of the run."""

    def tell(*, began: float, **numbers: Any) -> None:
        line = {**numbers, "seconds": round(time.monotonic() - began)}
        request.config.stash.setdefault(_REPORTED, []).append(line)

    return tell


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show what came of the tests, a table for each kind of test."""
    tables: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for line in config.stash.get(_REPORTED, []):
        tables.setdefault(tuple(line), [tuple(line)]).append(tuple(map(str, line.values())))
    for lines in tables.values():
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for cells in lines:
            terminalreporter.write_line("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))


@pytest.fixture
def signal_session() -> Callable[..., None]:
    """Sends a signal to everything a job has started."""
    return _signal_session


@pytest.fixture
def prepared() -> Callable[..., pl.DataFrame]:
    """Makes the input of a job with a real sink, and what it must come to."""
    return _prepared


@pytest.fixture
def rows_in() -> Callable[..., pl.DataFrame]:
    """Reads what a sink holds."""
    return _rows_in


def _prepared(job: Any, kind: str, address: str, *, rows: int, files: int) -> pl.DataFrame:
    """Make the input of a job and what it must come to, computed on its own."""
    truth = job.root / "truth.parquet"
    job.write_input(PAYMENTS, truth=truth, rows=rows, files=files, start=START, rate=10.0)
    if kind == "kafka":
        _fill_topic(address, job.root / "in")
    micros = pl.col("at").cast(pl.Int64)
    return (
        pl.read_parquet(truth)
        .filter(pl.col("reason").is_null())
        .with_columns((micros - micros % MINUTE).alias("start"))
        .group_by("account", "start")
        .agg(
            pl.col("amount").sum().alias("spent"),
            pl.len().cast(pl.Int64).alias("payments"),
            pl.col("id").min().alias("first"),
            pl.col("id").max().alias("last"),
        )
        .sort("account", "start")
    )


def _fill_topic(address: str, folder: Path) -> None:
    for topic, partitions in (("in", 4), ("out", 3)):
        create_topic(address, topic, partitions)
    settings = {
        "bootstrap.servers": address,
        "linger.ms": 20,
        "enable.idempotence": True,  # otherwise a request that is sent again changes the order of a partition's rows
        "queue.buffering.max.messages": 2_000_000,
        "log_level": 0,
    }
    producer = Producer(settings)
    for file in sorted(folder.iterdir()):
        for number, line in enumerate(file.read_bytes().splitlines()):
            producer.produce("in", line, partition=number % 4)
    assert producer.flush(60) == 0


def _rows_in(kind: str, address: str, root: Path) -> pl.DataFrame:
    """What a sink holds: every row that a reader would see, in one shape."""
    read = {"kafka": _in_kafka, "delta": _in_delta, "postgres": _in_postgres, "redis": _in_redis}[kind]
    rows = read(address, root).select("account", "start", "spent", "payments", "first", "last")
    return rows.sort("account", "start")


def _in_kafka(address: str, root: Path) -> pl.DataFrame:
    rows = pl.DataFrame([json.loads(value or b"") for _, value in messages(address, "out")])
    start = pl.col("window").struct.field("start").str.to_datetime(time_zone="UTC", time_unit="us")
    return rows.with_columns(start.cast(pl.Int64).alias("start"))


def delta_rows(table: Path) -> pl.DataFrame:
    """The rows of the files that the table's own log says are in it."""
    files: dict[str, bool] = {}
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files[action["add"]["path"]] = True
            if "remove" in action:
                files[action["remove"]["path"]] = False
    return pl.concat([pl.DataFrame(), *(pl.read_parquet(table / file) for file, there in files.items() if there)])


def _in_delta(address: str, root: Path) -> pl.DataFrame:
    rows = delta_rows(root / "table")
    start = pl.col("window").struct.field("start").cast(pl.Datetime("us", "UTC"))
    return rows.with_columns(start.cast(pl.Int64).alias("start"))


def _in_postgres(address: str, root: Path) -> pl.DataFrame:
    query = (
        "select account, extract(epoch from window_start)::bigint * 1000000, spent, payments, first, last from spend"
    )
    with psycopg.connect(address) as connection:
        rows = connection.execute(query).fetchall()
    return pl.DataFrame(rows, schema=["account", "start", "spent", "payments", "first", "last"], orient="row")


def _in_redis(address: str, root: Path) -> pl.DataFrame:
    client = redis.Redis.from_url(address, decode_responses=True)
    keys = list(client.scan_iter("spend:*", count=5000))
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.hgetall(key)
    rows = pl.DataFrame(pipeline.execute())
    return rows.select(
        "account",
        pl.col("window_start").str.to_datetime(time_zone="UTC", time_unit="us").cast(pl.Int64).alias("start"),
        pl.col("spent").cast(pl.Float64),
        pl.col("payments").cast(pl.Int64),
        "first",
        "last",
    )
