"""The file sink: an attempt at a batch is one folder, and the first one that is renamed into place counts."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

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
from headrace.connectors.files.batch_listing import BatchListing, read_listing
from headrace.errors import HeadraceError, check_choice
from headrace.nodes import ResultVersions
from headrace.rendering import json_lines
from headrace.schemas import from_arrow
from headrace.stability import stable
from headrace.storage import COMMITS, durable_file, sync_folder

STAGING = "_staging"
"""The subfolder with a folder for each attempt."""
BATCH = "headrace_batch"
"""A batch's folder is a partition in the eyes of Spark and others, which do not look into other folders."""
LISTING = "_commit.json"
"""The file in a batch's folder that lists the others; ``_commits`` has a copy."""
Format = Literal["parquet", "json"]


@dataclass(frozen=True, slots=True)
class Commits:
    """The commits of one output, numbered without gaps; each is a folder that appears only if it is absent.

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

    def folder(self, number: int) -> Path:
        return self.root / f"{BATCH}={self.name(number)}"

    def mark(self) -> Mark | None:
        """That of the commit after the last one that the log knows; if there is none, that of the last one."""
        for number in (self.done + 1, self.done):
            folder = self.folder(number)
            if folder.exists():
                listed = read_listing(folder / LISTING)
                return Mark(0, listed.generation, listed.batch, listed.rows, listed.token)
        return None


@dataclass(frozen=True, slots=True)
class FileSink(DriverSink):
    """A folder of Parquet or JSON-lines files, with a subfolder for each batch that had rows.

    Whoever reads the folder without the list of commits sees the same batches: one appears by a rename, as a whole.
    """

    guarantee: ClassVar[Guarantee] = "exactly_once"
    path: str
    format: Format
    versions: ResultVersions | None = None

    def of_results(self, versions: ResultVersions | None) -> FileSink:
        return replace(self, versions=versions)

    @property
    def target(self) -> str:
        return f"folder {self.path!r}"

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        return [Commits(Path(self.path).absolute(), part.batch).mark() for part in parts]

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        root, part = Path(self.path).absolute(), WriterBatch(batch, 0, batch.last)
        commits = Commits(root, batch)
        already_written(part, commits.mark(), place=self.place)
        name, folder = commits.name(commits.done + 1), commits.folder(commits.done + 1)
        for left_over in (root / STAGING).glob(f"{commits.writer}-*"):
            _discard(left_over)
        staging = root / STAGING / f"{name}-{uuid.uuid4().hex}"
        parts = self.write_parts(frame, staging)
        # The folder may have been removed meanwhile, and tasks make it anew.
        is_ours = not already_written(part, commits.mark(), place=self.place)
        out, rows = sum(part.out for part in parts), sum(part.rows for part in parts)
        if is_ours and rows == 0:
            return Written(out, rows)
        if is_ours:
            files, schema = tuple(f"{folder.name}/{part.file}" for part in parts), frame._jdf.schema().toDDL()
            about = batch.generation, batch.batch, batch.token
            is_ours = self.publish(
                staging, folder, BatchListing(self.format, schema, files, rows, *about, self.versions)
            )
            # Another driver may have been faster, of this checkpoint or of a copy.
            already_written(part, commits.mark(), place=self.place)
        _discard(staging)
        self.commit(root / COMMITS / f"{name}.json", (folder / LISTING).read_bytes())
        return Written(out, rows) if is_ours else Written(out, 0, already_marked=read_listing(folder / LISTING).rows)

    def write_parts(self, frame: DataFrame, staging: Path) -> list[Row]:
        """Run the frame once; every task writes one file and returns its name."""
        part = _part_writer(str(staging), self.format)
        return frame.mapInArrow(part, "file STRING, out BIGINT, rows BIGINT").collect()

    def publish(self, staging: Path, folder: Path, listing: BatchListing) -> bool:
        """Move an attempt's files into place with their list, unless another attempt is there; whether they are."""
        found, files = {file.name for file in staging.glob("*")}, {Path(file).name for file in listing.files}
        if not found.issuperset(files):
            raise HeadraceError(
                "FILES_REMOVED",
                f"folder {str(folder.parent)!r}: files that this batch has just written are gone. Somebody removes "
                "them, or another driver has taken over. The batch is not done; start again to write it.",
            )
        # A task that ran twice has written two files, and one of them counts.
        for file in found.difference(files):
            (staging / file).unlink()
        with durable_file(staging / LISTING) as stream:
            stream.write(listing.to_bytes())
        try:
            # This never replaces a folder that is not empty: of two attempts the first one counts.
            staging.rename(folder)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        sync_folder(folder.parent)
        return True

    def commit(self, file: Path, listing: bytes) -> None:
        """List a batch that is in place, unless it is listed already."""
        LocalStorage(file.parent).claim(file.name, listing)

    def __repr__(self) -> str:
        return f"hr.to_files({self.path!r}, format={self.format!r})"


@stable
def to_files(path: str | os.PathLike[str], *, format: Format = "parquet") -> FileSink:
    """Write results as files, batch by batch, exactly once.

    ``hr.read_results`` reads them back as a table, as Spark's own reader does, and ``hr.read_files`` as a stream.

    >>> to_files("out/spend", format="json")
    hr.to_files('out/spend', format='json')
    """
    check_choice(Format, format=format)
    return FileSink(os.fspath(path), format)


def _discard(staging: Path) -> None:
    """Remove what is left of an attempt. It has another name first: who wakes up cannot move half of it into place."""
    removed = staging.with_name(f"{staging.name}~")
    with suppress(FileNotFoundError):
        staging.rename(removed)
        shutil.rmtree(removed)


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
