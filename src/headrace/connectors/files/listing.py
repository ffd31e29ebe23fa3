"""Finds new files in a landing folder, and remembers those that a flow has seen."""

from __future__ import annotations

import io
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
from pyarrow import fs, ipc

from headrace.checkpoint.storage import Storage
from headrace.connectors.base.enumerator import SOURCES, Planned, divided
from headrace.connectors.base.sink import Unreachable
from headrace.event_time.tracker import WHOLE
from headrace.storage import local_path

MOST_FILES = 10_000
"""The most files of a batch: what its tasks are told stays small."""
PATH, SIZE, MODIFIED = "path", "size", "modified"
SCHEMA = {PATH: pl.String(), SIZE: pl.Int64(), MODIFIED: pl.Int64()}
"""A file: its path, its bytes, and when it was modified in microseconds. Where one differs it is another file."""
HIDDEN = "hidden"
WRITTEN_WITHIN_SECONDS = 60
"""A hidden file may take so long to become whole and get its name."""
NAMED = 3
"""How many hidden files are named."""
Found = tuple[str, int, int, bool]
Hidden = Callable[[pl.DataFrame], None]
"""Takes the files and folders that are hidden."""


def list_files(place: str, hidden: Hidden | None = None) -> pl.DataFrame:
    """The files that are not empty in a folder and those below it, local or remote.

    Files and folders that begin with ``_`` or ``.`` are hidden. ``Unreachable`` when the folder cannot be listed.
    """
    local = local_path(place)
    try:
        found = list(_local_files(local) if local is not None else _remote_files(place))
    except OSError as problem:
        raise Unreachable(str(problem)) from None
    listed = pl.DataFrame(found, schema={**SCHEMA, HIDDEN: pl.Boolean()}, orient="row")
    if hidden is not None:
        hidden(listed.filter(HIDDEN).drop(HIDDEN))
    return listed.filter(~pl.col(HIDDEN)).drop(HIDDEN)


@dataclass(slots=True)
class HiddenFiles:
    """Warns once of each hidden file of a source that is there when a flow begins or stays while it runs."""

    source: str
    _told: set[str] | None = None

    def __call__(self, hidden: pl.DataFrame) -> None:
        if self._told is None:
            self._told = set()
        else:
            stayed = time.time_ns() // 1000 - WRITTEN_WITHIN_SECONDS * 1_000_000
            hidden = hidden.filter(pl.col(MODIFIED) < stayed)
        new = sorted(set(hidden[PATH]) - self._told)
        self._told.update(new)
        if new:
            more = f" and {len(new) - NAMED} more" if len(new) > NAMED else ""
            warnings.warn(
                f"source {self.source!r} passes over files and folders whose names begin with _ or . ({len(new)}): "
                f"{', '.join(new[:NAMED])}{more}. Rename those that hold rows.",
                RuntimeWarning,
                stacklevel=2,
            )


def file_stat(path: str, place: str) -> tuple[int, int] | None:
    """The size of a file and when it was modified; None if it is gone, ``Unreachable`` if its folder is."""
    local = local_path(path)
    try:
        if local is not None:
            now = local.stat()
            return now.st_size, now.st_mtime_ns // 1000
        system, inside = fs.FileSystem.from_uri(path)
        found = system.get_file_info(inside)
        if found.type == fs.FileType.File:
            return found.size, found.mtime_ns // 1000
    except FileNotFoundError:
        pass
    except OSError as problem:
        raise Unreachable(str(problem)) from None
    list_files(place)
    return None


def _local_files(folder: Path) -> Iterator[Found]:
    folders = [str(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                hidden = _is_hidden(entry.name)
                if not hidden and entry.is_dir():
                    folders.append(entry.path)
                    continue
                try:
                    found = entry.stat()
                except FileNotFoundError:
                    continue  # removed in this moment
                if found.st_size:
                    yield f"file:{_as_text(entry.path)}", found.st_size, found.st_mtime_ns // 1000, hidden


def _remote_files(place: str) -> Iterator[Found]:
    system, inside = fs.FileSystem.from_uri(place)
    uri, options = place.partition("?")[::2]
    for found in system.get_file_info(fs.FileSelector(inside, recursive=True)):
        below = found.path.removeprefix(inside).lstrip("/")
        if found.type == fs.FileType.File and found.size:
            path = f"{uri.rstrip('/')}/{quote(below)}"
            hidden = any(map(_is_hidden, below.split("/")))
            yield f"{path}?{options}" if options else path, found.size, found.mtime_ns // 1000, hidden


def _as_text(path: str) -> str:
    """A path, escaped where its bytes are not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return quote(path, errors="surrogateescape")
    return path


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


class FileEnumerator:
    """Finds new files. A position names lists of files in the flow's folder: those of each batch, merged as they grow.

    A file is known by its path, its size and when it was modified, so one that is written again is new. The last list
    is what the last batch reads.
    """

    def __init__(
        self,
        source: str,
        storage: Storage,
        place: str,
        files_per_batch: int | None = None,
        hidden: Hidden | None = None,
    ) -> None:
        self.place = place
        self._storage = storage
        self._name = f"{SOURCES}/{source}"
        self._files_per_batch = files_per_batch or MOST_FILES
        self._hidden = hidden
        self._there: pl.DataFrame | None = None
        """Where a run over what is there ends: the files that were there when it began."""
        self._seen: dict[str, pl.DataFrame] = {}
        """The files in each list."""
        self._stored: set[str] | None = None
        """The lists that may be stored; None before they were looked for."""

    def initial(self) -> dict[str, Any]:
        return {"lists": []}

    def check(self, since: dict[str, Any]) -> None:
        for name in since["lists"]:
            self._read(name)

    def stop_at_newest(self) -> None:
        self._there = list_files(self.place, self._hidden)

    def plan(self, since: dict[str, Any], *, most: int | None) -> Planned:
        lists: list[str] = since["lists"]
        self._forget_all_but(lists)
        there = list_files(self.place, self._hidden) if self._there is None else self._there
        new = there.join(self._known(lists), on=list(SCHEMA), how="anti").sort(MODIFIED, PATH)
        taken = new.head(self._files_per_batch)
        if taken.is_empty():
            return Planned(since)
        unread = {WHOLE: new.height - taken.height} if new.height > taken.height else {}
        return Planned({"lists": [*self._merged(lists, there), self._store(taken)]}, unread)

    def splits(self, since: dict[str, Any], until: dict[str, Any], *, tasks: int) -> list[list[tuple[Any, ...]]]:
        files = self._read(until["lists"][-1]).rows() if until != since else []
        return [files[run] for run in divided([size for _, size, _ in files], tasks)]

    def _merged(self, lists: list[str], there: pl.DataFrame) -> list[str]:
        """Lists, each at least twice as long as the one behind it; files that are gone leave when lists are merged."""
        first = len(lists) - 1
        while first > 0 and _rows(lists[first - 1]) < 2 * sum(map(_rows, lists[first:])):
            first -= 1
        if first == len(lists) - 1:
            return lists
        files = pl.concat(map(self._read, lists[first:]))
        return [*lists[:first], self._store(files.join(there, on=list(SCHEMA), how="semi"))]

    def _store(self, files: pl.DataFrame) -> str:
        """Write a list; its name says how many files are in it."""
        content = io.BytesIO()
        files.write_ipc(content, compat_level=pl.CompatLevel.oldest())
        name = self._storage.write_named(self._name, str(files.height), content.getbuffer())
        if self._stored is not None:
            self._stored.add(name)
        return name

    def _forget_all_but(self, lists: list[str]) -> None:
        """Remove the lists that no batch needs any more: the one before this is concluded."""
        if self._stored is None:
            # If this driver was frozen, some are those of the next one: it removes none before the lease is checked.
            self._stored = {name.rpartition("/")[2] for name in self._storage.list(self._name)}
            return
        for name in self._stored.difference(lists):
            self._storage.delete(f"{self._name}/{name}")
        self._stored = set(lists)

    def _read(self, name: str) -> pl.DataFrame:
        files = pl.from_arrow(ipc.open_file(self._storage.read_named(self._name, name)).read_all())
        assert isinstance(files, pl.DataFrame)
        return files

    def _known(self, lists: list[str]) -> pl.DataFrame:
        seen = self._seen
        self._seen = {name: seen[name] if name in seen else self._read(name) for name in lists}
        return pl.concat([pl.DataFrame(schema=SCHEMA), *self._seen.values()])


def _rows(name: str) -> int:
    return int(name.split("-", maxsplit=1)[0])
