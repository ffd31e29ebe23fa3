"""The append-only log of changes beside a checkpoint: numbered entries, each whole transactions, each written once."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from headrace.connectors.postgres.changes.catalogue import Column
from headrace.storage import named_first, sync_folder

ENTRIES, DATA = "entries", "data"
FOLDER_ENTRIES = 1000
KIND, PLACE, COMMITTED, TRANSACTION, UNSENT = "kind", "place", "committed_at", "transaction", "unsent"
HEAD: Mapping[str, pl.DataType] = {
    KIND: pl.String(),
    PLACE: pl.String(),
    COMMITTED: pl.Int64(),
    TRANSACTION: pl.Int64(),
    UNSENT: pl.List(pl.String()),
}
"""What a row in a file says beside its values, which are texts in columns ``0``, ``1`` and so on."""


class Overtaken(Exception):
    """Another feed has written the entry: what it holds must be read before one goes on."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of one table's changes; its columns are those that the table had then."""

    table: str
    name: str
    columns: tuple[Column, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What became known at once: files of changes, tables that were emptied, and how far the server's log was read."""

    files: tuple[File, ...] = ()
    truncated: Mapping[str, str] = field(default_factory=dict)
    """The tables that were emptied, each with the position."""
    altered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The tables whose columns were seen to be others than before, each with the names that are new, if any."""
    last: int = 0
    """The commit of the last transaction in it or before it."""
    end: int = 0
    """Where the server's log goes on behind that."""
    logged_at: int = 0
    seen: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    """The columns that tables had last, where these are others than at the beginning of the log."""

    def rows_of(self, table: str) -> int:
        """How many rows a reader of a table finds."""
        return sum(file.rows for file in self.files if file.table == table)

    def is_turn_of(self, table: str) -> bool:
        """Whether a table was emptied, or has other columns than before."""
        return table in self.truncated or table in self.altered

    @classmethod
    def from_json(cls, text: str) -> Entry:
        """An entry from its file."""
        given = json.loads(text)
        files = tuple(File(**{**file, "columns": _columns(file["columns"])}) for file in given["files"])
        altered, seen = given["altered"], given.get("seen", {})
        if isinstance(altered, list):
            # Earlier versions named the table alone, and what was new is among the columns of its files.
            named = {table: [file for file in files if file.table == table] for table in altered}
            altered = {table: [column.name for file in own for column in file.columns] for table, own in named.items()}
        now = {table: _columns(columns) for table, columns in seen.items()}
        return cls(**{**given, "files": files, "altered": altered, "seen": now})


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """The entries of one folder; a second writer loses to the first, so no entry is ever written twice."""

    folder: Path

    def create(self) -> None:
        """Make the folders."""
        for name in (ENTRIES, DATA):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        sync_folder(self.folder)

    def first(self) -> int:
        """The number of the oldest entry that is there."""
        return min(self._numbers(newest=False), default=0)

    def next(self) -> int:
        """The number after the newest entry: entries are added at the end and removed at the beginning only."""
        return max(self._numbers(newest=True), default=-1) + 1

    def _numbers(self, *, newest: bool) -> list[int]:
        """The numbers in the folder at one end, each of which holds some hundreds; a crash may leave empty ones."""
        for folder in sorted((self.folder / ENTRIES).iterdir(), reverse=newest):
            numbers = [int(file.stem) for file in folder.glob("[0-9]*.json")]
            if numbers:
                return numbers
        return []

    def entry(self, number: int) -> Entry:
        """What an entry says."""
        return Entry.from_json(self._file(number).read_text(encoding="utf-8"))

    def size(self, number: int) -> int:
        """How many bytes an entry and its files have; a crash while it was removed may have left some out."""
        files = [self.data(file) for file in self.entry(number).files]
        return sum(file.stat().st_size for file in (self._file(number), *files) if file.exists())

    def last(self) -> Entry:
        """The newest entry, or an empty one."""
        following = self.next()
        return self.entry(following - 1) if following else Entry()

    def publish(self, number: int, entry: Entry) -> None:
        """Make an entry appear whole and for ever, unless there is one of its number."""
        file = self._file(number)
        make_folder(file.parent)
        unfinished = file.parent / f".{uuid.uuid4().hex}"
        with unfinished.open("w", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(entry)))
            stream.flush()
            os.fsync(stream.fileno())
        if not named_first(unfinished, file):
            raise Overtaken(f"entry {number} of {self.folder} was written by another feed")

    def remove(self, number: int) -> None:
        """Forget the oldest entry and its files."""
        for file in self.entry(number).files:
            self.data(file).unlink(missing_ok=True)
        self._file(number).unlink()
        if number % FOLDER_ENTRIES == FOLDER_ENTRIES - 1:
            # With what feeds have left there that were killed before they could finish it.
            for kind in (DATA, ENTRIES):
                shutil.rmtree(self.folder / kind / folder_of(number), ignore_errors=True)

    def data(self, file: File) -> Path:
        """Where a file of an entry is."""
        return self.folder / DATA / file.name

    def _file(self, number: int) -> Path:
        return self.folder / ENTRIES / folder_of(number) / f"{number:012d}.json"


def _columns(given: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    return tuple(Column(**column) for column in given)


def folder_of(number: int) -> str:
    """The folder of an entry and of its files: no folder holds more than some thousand.

    >>> folder_of(12_345)
    '000000012'
    """
    return f"{number // FOLDER_ENTRIES:09d}"


def make_folder(folder: Path) -> None:
    """Make a folder that stays after a crash of the machine."""
    if not folder.exists():
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
