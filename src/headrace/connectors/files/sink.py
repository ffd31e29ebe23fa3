"""The file sink: an attempt at a batch is one folder, renamed into place, and the one that is listed counts."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.sink import (
    BatchIdentity,
    DriverSink,
    Guarantee,
    Mark,
    WriterBatch,
    Written,
    already_written,
)
from headrace.errors import HeadraceError, check_choice
from headrace.rendering import json_lines
from headrace.schemas import from_arrow
from headrace.stability import stable
from headrace.storage import COMMITS, durable_file, sync_folder

STAGING = "_staging"
"""The subfolder with a folder for each attempt, until another one or this one is listed."""
PARTS = "parts"
"""The folder in that of an attempt that its tasks write, and which is moved into place."""
Format = Literal["parquet", "json"]


@dataclass(frozen=True, slots=True)
class Commits:
    """The commits of one output, numbered without gaps; each is created only if it is absent.

    So of two copies of a checkpoint one gets the next number, however they divide their rows into batches.
    """

    root: Path
    batch: BatchIdentity
    """The batch that is to be committed."""

    @property
    def writer(self) -> str:
        """By its id, not its name: a new checkpoint must not take an old one's batches for its own."""
        return f"{self.batch.id or self.batch.flow}.{self.batch.output}"

    @property
    def done(self) -> int:
        """The number of the last commit that the log knows."""
        return 0 if self.batch.last is None else self.batch.last.count

    def name(self, number: int) -> str:
        return f"{self.writer}-{self.batch.generation:04d}-{number:010d}"

    def mark(self) -> Mark | None:
        """That of the commit after the last one that the log knows; if there is none, that of the last one."""
        for number in (self.done + 1, self.done):
            commit = _commit_file(self.root, self.name(number))
            if commit.exists():
                listed = _listing(commit)
                return Mark(0, self.batch.generation, listed["batch"], listed["rows"], listed["token"])
        return None


@dataclass(frozen=True, slots=True)
class FileSink(DriverSink):
    """A folder of Parquet or JSON-lines files, with a subfolder for each batch that had rows."""

    guarantee: ClassVar[Guarantee] = "exactly_once"
    path: str
    format: Format

    @property
    def target(self) -> str:
        return f"folder {self.path!r}"

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        return [Commits(Path(self.path).absolute(), part.batch).mark() for part in parts]

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        root, part = Path(self.path).absolute(), WriterBatch(batch, 0, batch.last)
        commits = Commits(root, batch)
        already_written(part, commits.mark(), place=self.place)
        name = commits.name(commits.done + 1)
        attempt = f"{name}-{batch.batch}-{uuid.uuid4().hex}"
        left_over = list((root / STAGING).glob(f"{commits.writer}-*"))
        for other in left_over:
            shutil.rmtree(other / PARTS, ignore_errors=True)
        staging = root / STAGING / attempt
        parts = self.write_parts(frame, staging)
        # The folder may have been removed meanwhile, and tasks make it anew.
        is_listed = already_written(part, commits.mark(), place=self.place)
        out, rows = sum(part.out for part in parts), sum(part.rows for part in parts)
        commit = _commit_file(root, name)
        if rows == 0 and not is_listed:
            return Written(out, rows)
        if not is_listed:
            self.publish(staging, root / attempt, {part.file for part in parts})
            files = [f"{attempt}/{part.file}" for part in parts]
            about = {"generation": batch.generation, "batch": batch.batch, "token": batch.token}
            self.commit(commit, {"format": self.format, "files": files, "rows": rows, **about})
        for each in (staging, *left_over):
            _remove_unless_listed(root, each)
        # Another driver may have been faster, of this checkpoint or of a copy.
        already_written(part, commits.mark(), place=self.place)
        counted = _counted(commit) == attempt
        return Written(out, rows) if counted else Written(out, 0, already_marked=int(_listing(commit)["rows"]))

    def write_parts(self, frame: DataFrame, staging: Path) -> list[Row]:
        """Run the frame once; every task writes one file and returns its name."""
        part = _part_writer(str(staging / PARTS), self.format)
        return frame.mapInArrow(part, "file STRING, out BIGINT, rows BIGINT").collect()

    def publish(self, staging: Path, folder: Path, files: Collection[str]) -> None:
        """Move an attempt's files into their folder; what is left in the staging folder says that there is one."""
        parts = staging / PARTS
        found = {file.name for file in parts.glob("*")}
        if not found.issuperset(files):
            raise HeadraceError(
                "FILES_REMOVED",
                f"folder {str(folder.parent)!r}: files that this batch has just written are gone. Somebody removes "
                "them, or another driver has taken over. The batch is not done; start again to write it.",
            )
        # A task that ran twice has written two files, and one of them counts.
        for file in found.difference(files):
            (parts / file).unlink()
        sync_folder(parts)
        parts.replace(folder)
        sync_folder(folder.parent)

    def commit(self, file: Path, listing: dict[str, Any]) -> None:
        """List an attempt's files, unless another attempt is listed; this commits the batch."""
        LocalStorage(file.parent).claim(file.name, json.dumps(listing).encode())

    def __repr__(self) -> str:
        return f"hr.to_files({self.path!r}, format={self.format!r})"


@stable
def to_files(path: str | os.PathLike[str], *, format: Format = "parquet") -> FileSink:
    """Write results as files, batch by batch, exactly once; ``hr.read_files`` reads them back.

    >>> to_files("out/spend", format="json")
    hr.to_files('out/spend', format='json')
    """
    check_choice(Format, format=format)
    return FileSink(os.fspath(path), format)


def _commit_file(root: Path, name: str) -> Path:
    return root / COMMITS / f"{name}.json"


def _listing(commit: Path) -> dict[str, Any]:
    """What a commit file says."""
    try:
        return dict(json.loads(commit.read_text(encoding="utf-8")))
    except ValueError as problem:
        raise HeadraceError(
            "COMMIT_DAMAGED",
            f"{str(commit)!r} was truncated or changed ({problem}), so nobody knows which files of its batch count. "
            "Put it back from a copy: commits never change.",
        ) from None


def _counted(commit: Path) -> str:
    """The attempt that a commit file lists."""
    return str(_listing(commit)["files"][0]).partition("/")[0]


def _remove_unless_listed(root: Path, staging: Path) -> None:
    """Remove what is left of an attempt: its staging folder, and its files unless they are those that count.

    Only where its batch is listed: before, a driver that sleeps could still list this attempt.
    """
    attempt = staging.name
    commit = _commit_file(root, attempt.rsplit("-", 2)[0])
    if commit.exists():
        # Parts first, so that a driver that wakes up cannot move them into place any more.
        shutil.rmtree(staging / PARTS, ignore_errors=True)
        if _counted(commit) != attempt:
            shutil.rmtree(root / attempt, ignore_errors=True)
        shutil.rmtree(staging, ignore_errors=True)


def _part_writer(staging: str, format: Format) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        filled = [batch for batch in batches if batch.num_rows > 0]
        if not filled or context is None:
            return
        file = f"part-{context.partitionId():05d}-{uuid.uuid4().hex}.{format}"
        out = sum(batch.num_rows for batch in filled)
        rows = _write_file(Path(staging) / file, filled, format)
        yield pa.record_batch({"file": [file], "out": [out], "rows": [rows]})

    return write_part


def _write_file(file: Path, batches: list[pa.RecordBatch], format: Format) -> int:
    with durable_file(file) as stream:
        if format == "parquet":
            with pq.ParquetWriter(stream, batches[0].schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        else:
            for batch in batches:
                stream.write(json_lines(from_arrow(batch)))
    if format == "parquet":
        return int(pq.read_metadata(file).num_rows)
    return file.read_bytes().count(b"\n")
