"""The job that recovery tests run in a process of its own, crash and start again.

Failpoints live here and nowhere else: this script wraps the library's own functions in its own process. What runs in
tasks is pickled by value, because the script is ``__main__``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headrace as hr
from headrace.checkpoint.log import FOLDER, Log
from headrace.checkpoint.storage import LocalStorage
from headrace.checkpoint.sweep import Sweeper
from headrace.connectors.base.sink import BatchIdentity
from headrace.connectors.files import sink as files
from headrace.connectors.files.listing import FileEnumerator
from headrace.connectors.files.sink import FileSink
from headrace.event_time.record import BatchLog
from headrace.generator.payments import Payments
from headrace.observe import history
from headrace.runtime.broadcast_tables import BroadcastTables
from tests.recovery.failpoints import FAILPOINT, IN_TASKS, crash, wrap

PART_PATIENCE = 60.0
LEVELS = "levels.parquet"
DELETIONS: dict[str, tuple[str, type, str]] = {
    "start's sweep half done": ("state/", Sweeper, "all"),
    "table forgotten": ("tables/", BroadcastTables, "forget"),
    "log trim half done": ("log/", Log, "trim"),
}
"""Of steps that delete files: below which folder, and in which call."""


@hr.pipeline(name="recovery")
def spend(spark: SparkSession, root: str, size: str, files_per_batch: int) -> None:
    """Spend by account and by shop; late payments and broken ones beside it."""
    payments = hr.read_files(
        spark, f"{root}/in", format="json", schema=Payments.schema, name="payments", files_per_batch=files_per_batch
    ).transform(hr.event_time("at", out_of_order="2 seconds"))
    levels = hr.broadcast_join("levels", hr.file_table(f"{root}/{LEVELS}"), on="account", how="left")
    payments = payments.transform(levels)
    windows = (
        hr.tumbling("spend", size=size, key="account")
        .agg(spent="sum(amount)", payments="count(*)", first="min(id)", last="max(id)", level="max(level)")
        .late(hr.side_output())
        .outputs(payments)
    )
    sales = hr.tumbling("sales", size=size, key="shop").agg(sold="sum(amount)").late(hr.drop())
    hr.write(
        "spend",
        (windows.main, hr.to_files(f"{root}/out/main")),
        (sales(payments), hr.to_files(f"{root}/out/sales"), hr.to_files(f"{root}/out/sales again")),
        (windows.late, hr.to_files(f"{root}/out/late")),
    )


def write_levels(root: Path) -> None:
    """A small table that is another one for every start, and the same for every account that pays."""
    unfinished = root / f".{LEVELS}.{os.getpid()}"
    accounts = [*(f"account-{number:02}" for number in range(0, 100, 2)), f"nobody {uuid.uuid4().hex}"]
    table = pl.DataFrame({"account": accounts, "level": [number % 7 for number in range(len(accounts))]})
    table.write_parquet(unfinished)
    unfinished.replace(root / LEVELS)


def install(name: str, batch: int, marker: str) -> None:
    """Make this process die at a named step of a batch."""
    group = os.getpgrp()
    wrap(FileSink, "write", _note)

    def die() -> None:
        crash(marker, group)

    match name:
        case "after the list of files":
            wrap(FileEnumerator, "_store", lambda files: True, after=die)
        case "after the batch record":
            wrap(BatchLog, "write_record", lambda record: record.batch == batch, after=die)
        case "mid sink write":
            _break_parts(batch, lambda folder: _half_part(marker, group))
        case "between two writers":
            _break_parts(batch, lambda folder: _second_part(folder, marker, group))
        case "after state":
            wrap(FileSink, "write_parts", lambda frame, staging: _is_of("spend.main", staging, batch), after=die)
        case "before sink commit":
            wrap(FileSink, "commit", lambda file, listing: _lists("spend.main", file, listing, batch), before=die)
        case "after sink commit":
            wrap(FileSink, "commit", lambda file, listing: _lists("spend.main", file, listing, batch), after=die)
        case "between two main outputs":
            wrap(FileSink, "commit", lambda file, listing: _lists("sales.main", file, listing, batch), before=die)
        case "between two sinks' commits":
            wrap(FileSink, "commit", lambda file, listing: _lists("spend.late", file, listing, batch), before=die)
        case "before the outcome":
            wrap(BatchLog, "write_outcome", lambda outcome: outcome.batch == batch, before=die)
        case "after the outcome":
            wrap(BatchLog, "write_outcome", lambda outcome: outcome.batch == batch, after=die)
        case "before the history":
            wrap(history, "append", lambda entry: entry.batch == batch, before=die)
        case "after the takeover":
            wrap(BatchLog, "take_over", lambda identify: True, after=die)
        case "record half written" | "outcome half written":
            _half_of_an_entry(name.partition(" ")[0], batch, die)
        case "sweep half done":
            _half_of_a_sweep(batch, die)
        case step if step in DELETIONS:
            _first_deletion(*DELETIONS[step], batch, die)
        case "side files half cleared":
            wrap(LocalStorage, "delete", lambda name: name.startswith("side/") and f"/{batch}-" in name, after=die)
        case "between two sinks of one output":
            wrap(FileSink, "commit", lambda file, listing: _is_again(file, listing, batch), before=die)
        case "between dead letters and late rows":
            letters = "payments.dead_letters"
            wrap(FileSink, "commit", lambda file, listing: _lists(letters, file, listing, batch), after=die)
        case step if step in IN_TASKS:
            os.environ[FAILPOINT] = f"{step}|{batch}|{marker}|{group}"
        case _:
            raise ValueError(f"no failpoint is named {name!r}")


def _half_of_an_entry(kind: str, batch: int, die: Callable[[], None]) -> None:
    """Die when half of a log entry is on the disk, under the name that it has before it is whole."""
    original = LocalStorage._write

    def write(self: LocalStorage, file: Path, content: Any) -> None:
        entry: dict[str, Any] = (
            json.loads(bytes(content).splitlines()[0]) if file.parent.name == FOLDER else {"kind": ""}
        )
        if entry["kind"] == kind and entry["body"]["batch"] == batch:
            original(self, file, bytes(content)[: len(content) // 2])
            die()
        original(self, file, content)

    LocalStorage._write = write  # type: ignore[method-assign]


def _half_of_a_sweep(batch: int, die: Callable[[], None]) -> None:
    """Die when the first file that a merge has made superfluous is gone, and others are not."""
    swept: list[int] = []
    original = Sweeper.batch

    def sweeping(self: Sweeper, *arguments: Any, done: int, now: int) -> None:
        swept.append(done)
        original(self, *arguments, done=done, now=now)

    Sweeper.batch = sweeping  # type: ignore[method-assign, assignment]
    wrap(LocalStorage, "delete", lambda name: name.startswith("state/") and swept[-1:] == [batch], after=die)


def _first_deletion(folder: str, owner: type, method: str, batch: int, die: Callable[[], None]) -> None:
    """Die when a call has deleted its first file below a folder, at the start or behind the outcome of a batch."""
    outcomes: list[int] = []
    inside: list[bool] = []

    def is_now(outcome: Any) -> bool:
        outcomes.append(outcome.batch)
        return False

    def is_meant(name: str) -> bool:
        return bool(inside) and name.startswith(folder) and outcomes[-1:] in ([], [batch])

    wrap(BatchLog, "write_outcome", is_now)
    wrap(owner, method, lambda *_: True, before=lambda: inside.append(True), after=inside.clear)
    wrap(LocalStorage, "delete", is_meant, after=die)


def _is_again(file: Path, listing: bytes, batch: int) -> bool:
    """Whether it is of the second sink that gets the sales."""
    return file.parents[1].name == "sales again" and _lists("sales.main", file, listing, batch)


def _lists(output: str, commit: Path, listing: bytes, batch: int) -> bool:
    return f".{output}-0000-" in commit.name and bool(json.loads(listing)["batch"] == batch)


_batches: dict[str, int] = {}
"""The batch that each output has last begun to write."""


def _note(_: object, batch: BatchIdentity) -> bool:
    _batches[batch.output] = batch.batch
    return False


def _is_of(output: str, attempt: Path, batch: int) -> bool:
    return f".{output}-0000-" in attempt.name and _batches.get(output) == batch


PartWriter = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _break_parts(batch: int, broken: Callable[[str], Callable[[PartWriter], PartWriter]]) -> None:
    original = files._part_writer

    def part_writer(staging: str, format: Any) -> PartWriter:
        writer = original(staging, format)
        return broken(staging)(writer) if _is_of("spend.main", Path(staging), batch) else writer

    files._part_writer = part_writer


def _half_part(marker: str, group: int) -> Callable[[PartWriter], PartWriter]:
    """A task that dies with half of its rows in the file."""

    def breaking(writer: PartWriter) -> PartWriter:
        def half(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows > 1:
                    yield from writer(iter([batch.slice(0, batch.num_rows // 2)]))
                    crash(marker, group)

        return half

    return breaking


def _second_part(staging: str, marker: str, group: int) -> Callable[[PartWriter], PartWriter]:
    """The task of partition 1 dies as soon as the file of partition 0 is complete."""

    def breaking(writer: PartWriter) -> PartWriter:
        def second(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            if context is None or context.partitionId() == 0:
                yield from writer(batches)
                return
            list(batches)
            deadline = time.monotonic() + PART_PATIENCE
            while time.monotonic() < deadline:
                for part in Path(staging).glob("part-00000-*"):
                    try:
                        pq.read_metadata(part)
                    except (OSError, pa.ArrowInvalid):
                        continue
                    crash(marker, group)
                time.sleep(0.02)
            raise TimeoutError("the other task's file never became complete")

        return second

    return breaking


def main() -> None:
    """Run to the end of the data, or to the failpoint."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--size", default="1 minute")
    arguments.add_argument("--files-per-batch", type=int, default=1)
    arguments.add_argument("--master", default="local[2]")
    arguments.add_argument("--failpoint")
    arguments.add_argument("--batch", type=int, default=0)
    arguments.add_argument("--marker", default="")
    arguments.add_argument("--setting", action="append", default=[], help="name=value, for the session")
    given = arguments.parse_args()
    if given.failpoint is not None:
        install(given.failpoint, given.batch, given.marker)
    write_levels(given.root)
    settings = dict(setting.split("=", 1) for setting in given.setting)
    if FAILPOINT in os.environ:
        settings["spark.python.daemon.module"] = "tests.recovery.failing_worker_daemon"
        # Executors of a cluster do not inherit the environment.
        settings |= {f"spark.executorEnv.{name}": os.environ[name] for name in (FAILPOINT, "PYTHONPATH")}
    spark = hr.spark_session("recovery", master=given.master, quick_start=True, settings=settings)
    spend.run(
        checkpoint=given.root / "checkpoint",
        mode=hr.available_now(drain=True),
        spark=spark,
        root=str(given.root),
        size=given.size,
        files_per_batch=given.files_per_batch,
    )
    spark.stop()


if __name__ == "__main__":
    main()
