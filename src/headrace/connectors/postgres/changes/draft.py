"""The next entry of the log while it is being written."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow.parquet as pq

from headrace.connectors.postgres.changes.catalogue import Column
from headrace.connectors.postgres.changes.change_log import DATA, ChangeLog, Entry, File, folder_of, make_folder
from headrace.storage import sync_folder


class Draft:
    """Files for the next entry, written piece by piece, so that a transaction may be larger than memory."""

    def __init__(self, log: ChangeLog, number: int) -> None:
        self.number = number
        self._log = log
        self._open: list[_Writing] = []

    def write(self, table: str, columns: Sequence[Column], rows: pl.DataFrame) -> None:
        """Add rows of a table; other columns than before begin a new file."""
        mine = [writing for writing in self._open if writing.table == table]
        if not mine or mine[-1].columns != tuple(columns):
            folder = self._log.folder / DATA / folder_of(self.number)
            make_folder(folder)
            file = folder / f"{self.number:012d}-{uuid.uuid4().hex[:12]}.parquet"
            mine.append(_Writing(table, tuple(columns), file))
            self._open.append(mine[-1])
        mine[-1].write(rows)

    def finish(self) -> tuple[File, ...]:
        """Make the files stay after a crash of the machine."""
        files = tuple(writing.finish() for writing in self._open)
        if files:
            sync_folder(self._log.folder / DATA / folder_of(self.number))
        return files

    def discard(self) -> None:
        """Leave nothing behind."""
        for writing in self._open:
            writing.discard()

    def publish(self, entry: Entry) -> None:
        """Make all of it one entry, of which everything else is given."""
        self._log.publish(self.number, replace(entry, files=self.finish(), logged_at=time.time_ns() // 1000))


class _Writing:
    def __init__(self, table: str, columns: tuple[Column, ...], path: Path) -> None:
        self.table = table
        self.columns = columns
        self._path = path
        self._rows = 0
        self._stream: BinaryIO = path.open("wb")
        self._writer: Any = None

    def write(self, rows: pl.DataFrame) -> None:
        table = rows.to_arrow()
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._stream, table.schema, compression="zstd")
        self._writer.write_table(table)
        self._rows += rows.height

    def finish(self) -> File:
        self._writer.close()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        return File(self.table, f"{self._path.parent.name}/{self._path.name}", self.columns, self._rows)

    def discard(self) -> None:
        # Of a full disk: what could not be written before cannot be now.
        with suppress(OSError):
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError):
            self._stream.close()
        self._path.unlink(missing_ok=True)
