"""The change log: an append-only log of numbered entries beside the checkpoint, each of whole transactions."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import polars as pl
import pyarrow.parquet as pq

from headrace.changelog import COMMITTED_AT, TRANSACTION
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.postgres.changes.catalogue import SourceColumn
from headrace.json_codec import decode
from headrace.storage import sync_folder

ENTRIES, DATA = "entries", "data"
ENTRIES_PER_FOLDER = 1000
PIECE_ROWS, PIECE_BYTES = 100_000, 64 << 20
"""How many rows and bytes a writer holds in memory."""
KIND, PLACE, UNSENT = "kind", "place", "unsent"
HEAD: Mapping[str, pl.DataType] = {
    KIND: pl.String(),
    PLACE: pl.String(),
    COMMITTED_AT: pl.Int64(),
    TRANSACTION: pl.Int64(),
    UNSENT: pl.List(pl.String()),
}
"""The first columns of a file; the bytes of the table's values, which are texts, follow in columns ``0``, ``1``, ..."""
Row = tuple[object, ...]
"""A row of a file; the table's values in it are texts or their bytes, which may have any encoding."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of one table's changes, with the columns that the table had then."""

    table: str
    name: str
    columns: tuple[SourceColumn, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Changes that were logged together, and how far the server's WAL was read with them."""

    files: tuple[LogFile, ...] = ()
    truncated: Mapping[str, str] = field(default_factory=dict)
    """The tables that were truncated, each with the position."""
    altered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The tables whose columns differ from those before, each with the names of new columns, if any."""
    last: int = 0
    """The commit LSN of the last transaction in this or an earlier entry."""
    end: int = 0
    """The LSN right after that transaction."""
    logged_at: int = 0
    seen: Mapping[str, tuple[SourceColumn, ...]] = field(default_factory=dict)
    """The last known columns of tables whose columns differ from those at the beginning of the log."""

    def rows_of(self, table: str) -> int:
        return sum(file.rows for file in self.files if file.table == table)

    def alters(self, table: str) -> bool:
        """Whether a table was truncated, or has other columns than before."""
        return table in self.truncated or table in self.altered


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """The entries in one folder. Of two writers of one entry the first wins, so no entry is written twice."""

    folder: Path

    def create(self) -> None:
        for name in (ENTRIES, DATA):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        sync_folder(self.folder)

    def first(self) -> int:
        return min(self._numbers(newest=False), default=0)

    def next(self) -> int:
        """The number after the newest entry: entries are only added at the end and removed at the beginning."""
        return max(self._numbers(newest=True), default=-1) + 1

    def _numbers(self, *, newest: bool) -> list[int]:
        """The entries in the oldest or newest folder that has any; a crash may leave empty folders."""
        for folder in sorted((self.folder / ENTRIES).iterdir(), reverse=newest):
            numbers = [int(file.stem) for file in folder.glob("[0-9]*.json")]
            if numbers:
                return numbers
        return []

    def entry(self, number: int) -> LogEntry:
        return decode(LogEntry, json.loads(self._file(number).read_text(encoding="utf-8")))

    def size(self, number: int) -> int:
        """The bytes of an entry and its files; a crash during removal may have left some of them out."""
        files = [self.data(file) for file in self.entry(number).files]
        return sum(file.stat().st_size for file in (self._file(number), *files) if file.exists())

    def last(self) -> LogEntry:
        following = self.next()
        return self.entry(following - 1) if following else LogEntry()

    def publish(self, number: int, entry: LogEntry) -> bool:
        """Make an entry visible, whole and durable; False when another feed has written one with its number."""
        name = self._file(number).relative_to(self.folder)
        return LocalStorage(self.folder).create(str(name), json.dumps(asdict(entry)).encode())

    def remove(self, number: int) -> None:
        for file in self.entry(number).files:
            self.data(file).unlink(missing_ok=True)
        self._file(number).unlink()
        if number % ENTRIES_PER_FOLDER == ENTRIES_PER_FOLDER - 1:
            # Including what feeds have left there that were killed while they wrote.
            for kind in (DATA, ENTRIES):
                shutil.rmtree(self.folder / kind / _folder_of(number), ignore_errors=True)

    def data(self, file: LogFile) -> Path:
        return self.folder / DATA / file.name

    def _file(self, number: int) -> Path:
        return self.folder / ENTRIES / _folder_of(number) / f"{number:012d}.json"


class LogWriter:
    """Writes the files of the next entry piece by piece, so that a transaction may be larger than memory."""

    def __init__(self, log: ChangeLog, number: int) -> None:
        self.number, self._log = number, log
        self._folder = log.folder / DATA / _folder_of(number)
        self._files: list[_FileWriter] = []
        self._newest: dict[str, _FileWriter] = {}
        self._bytes = self.pieces = 0

    def write(self, table: str, columns: tuple[SourceColumn, ...], rows: Sequence[Row], size: int = 0) -> None:
        """Add rows of a table, ``size`` bytes in all; when its columns differ from before, a new file begins."""
        file = self._newest.get(table)
        if file is None or file.columns != columns:
            if not self._folder.exists():
                self._folder.mkdir(exist_ok=True)
                sync_folder(self._folder.parent)
            path = self._folder / f"{self.number:012d}-{uuid.uuid4().hex[:12]}.parquet"
            file = self._newest[table] = _FileWriter(table, columns, path)
            self._files.append(file)
        file.waiting.extend(rows)
        self._bytes += size
        if len(file.waiting) >= PIECE_ROWS or self._bytes >= PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self.pieces += sum(file.flush() for file in self._files)
        self._bytes = 0

    def finish(self) -> tuple[LogFile, ...]:
        self._flush()
        files = tuple(file.finish() for file in self._files)
        if files:
            sync_folder(self._folder)
        return files

    def discard(self) -> None:
        for file in self._files:
            file.discard()

    def publish(self, entry: LogEntry) -> bool:
        """Make the files one entry, unless there is one; ``entry`` is everything else about it."""
        return self._log.publish(self.number, replace(entry, files=self.finish(), logged_at=time.time_ns() // 1000))


class _FileWriter:
    def __init__(self, table: str, columns: tuple[SourceColumn, ...], path: Path) -> None:
        self.table, self.columns = table, columns
        self.waiting: list[Row] = []
        self._path, self._rows = path, 0
        self._names = [*HEAD, *map(str, range(len(columns)))]
        schema = pl.DataFrame(schema={name: HEAD.get(name, pl.Binary()) for name in self._names}).to_arrow().schema
        self._stream: BinaryIO = path.open("wb")
        self._writer = pq.ParquetWriter(self._stream, schema, compression="zstd")

    def flush(self) -> bool:
        """Write the rows that wait; returns whether there are any."""
        if not self.waiting:
            return False
        parts = zip(self._names, zip(*self.waiting, strict=True), strict=True)
        series = [pl.Series(name, values, dtype=HEAD.get(name)) for name, values in parts]
        rows = pl.DataFrame(series).cast({name: pl.Binary for name in self._names if name not in HEAD})
        self._writer.write_table(rows.to_arrow())
        self._rows += rows.height
        self.waiting.clear()
        return True

    def finish(self) -> LogFile:
        self._writer.close()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        return LogFile(self.table, f"{self._path.parent.name}/{self._path.name}", self.columns, self._rows)

    def discard(self) -> None:
        # On a full disk closing tries to write the rest, and fails.
        with suppress(OSError):
            self._writer.close()
        with suppress(OSError):
            self._stream.close()
        self._path.unlink(missing_ok=True)


def _folder_of(number: int) -> str:
    """The folder of an entry and its files, so that no folder grows beyond a few thousand files."""
    return f"{number // ENTRIES_PER_FOLDER:09d}"
