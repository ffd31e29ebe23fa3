"""Where the files of a checkpoint lie: a small set of calls that a local folder and an object store both have."""

from __future__ import annotations

import os
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.storage import sync_folder

_CHUNK = 1 << 20
UNFINISHED = "."
"""The prefix of a file that is being created: whoever reads a folder skips hidden files."""


class Buffer(Protocol):
    """Bytes, wherever they are."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


def incomplete(place: object, what: str) -> HeadraceError:
    """The error of a checkpoint of which a part is missing, or comes from another copy than the rest."""
    return HeadraceError(
        "CHECKPOINT_INCOMPLETE",
        f"checkpoint {str(place)!r} is not whole: {what}. Put that back from the copy that the rest comes from, or "
        "start with a new checkpoint.",
    )


def damaged(place: object, name: str) -> HeadraceError:
    """The error of a part of a checkpoint whose content is not what was written."""
    return HeadraceError(
        "CHECKPOINT_DAMAGED",
        f"{name!r} of checkpoint {str(place)!r} was truncated or changed. Put it back from any copy of the checkpoint "
        "that has it, because it never changes, or start with a new checkpoint.",
    )


class Storage(ABC):
    """Files by name; a name may have folders, as in ``state/hourly/1-5-0.arrow``."""

    @abstractmethod
    def open(self, name: str) -> pa.Buffer:
        """The content of a file, mapped where that is possible; FileNotFoundError when there is none."""

    @abstractmethod
    def size(self, name: str) -> int:
        """The size of a file in bytes; FileNotFoundError when there is none."""

    @abstractmethod
    def read_range(self, name: str, start: int, length: int) -> bytes:
        """A part of a file; shorter where the file ends; FileNotFoundError when there is none."""

    @abstractmethod
    def write(self, name: str, content: Buffer) -> None:
        """Write a file under a name that nobody else will ever use; it survives a crash of the machine."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one of that name: whole and durably; of all who try, one succeeds."""

    @abstractmethod
    def replace(self, name: str, content: bytes) -> None:
        """Write a file durably, in place of one of that name: whoever reads gets the old content or the new one."""

    @abstractmethod
    def list(self, folder: str) -> Iterator[str]:
        """The names of all files below a folder, or with ``""`` of all files, in no order."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""

    def write_named(self, folder: str, stem: str, content: Buffer) -> str:
        """Write an Arrow file under a new name, which tells what is in it, for ``read_named``. Returns the name."""
        name = f"{stem}-{zlib.crc32(content):08x}-{uuid.uuid4().hex}.arrow"
        self.write(f"{folder}/{name}", content)
        return name

    def read_named(self, folder: str, name: str) -> pa.Buffer:
        """The content of such a file; an error when it is gone, or is not what was written."""
        try:
            content = self.open(f"{folder}/{name}")
        except FileNotFoundError:
            raise incomplete(self, f"{folder}/{name} is missing") from None
        if f"{zlib.crc32(content):08x}" != name.split("-")[-2]:
            raise damaged(self, f"{folder}/{name}")
        return content

    def numbers(self, folder: str, suffix: str = ".json") -> Iterator[int]:
        """The numbers by which the files of a folder are named, in no order."""
        names = (name.rpartition("/")[2] for name in self.list(folder))
        return (int(name.removesuffix(suffix)) for name in names if name.endswith(suffix))

    def clear(self, folder: str) -> None:
        """Remove all files below a folder."""
        for name in self.list(folder):
            self.delete(name)

    def checksum(self, name: str) -> tuple[int, int]:
        """The size of a file and its CRC-32; FileNotFoundError when there is none."""
        size, checksum = self.size(name), 0
        for start in range(0, size, _CHUNK):
            checksum = zlib.crc32(self.read_range(name, start, _CHUNK), checksum)
        return size, checksum

    def claim(self, name: str, content: bytes) -> bool:
        """Create a file with content that nobody else writes; whether it now has this content."""
        try:
            if self.create(name, content):
                return True
        except OSError:
            # Whether it was written is not known: the file itself tells. One that is not there is a failure.
            with suppress(FileNotFoundError):
                if self.open(name) == content:
                    return True
            raise
        return bool(self.open(name) == content)


@dataclass(frozen=True, slots=True)
class LocalStorage(Storage):
    """A folder of a file system that the driver and all executors share."""

    folder: Path

    def open(self, name: str) -> pa.Buffer:
        with pa.memory_map(str(self.folder / name)) as file:
            return file.read_buffer()

    def size(self, name: str) -> int:
        return (self.folder / name).stat().st_size

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with (self.folder / name).open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(length)

    def write(self, name: str, content: Buffer) -> None:
        file = self.folder / name
        self._write(file, content)
        sync_folder(file.parent)

    def create(self, name: str, content: bytes) -> bool:
        file = self.folder / name
        if file.exists():
            return False
        unfinished = self._unfinished(file, content)
        try:
            # Unlike a rename, a link never replaces a file: the first of two writers wins.
            os.link(unfinished, file)
        except FileExistsError:
            return False
        finally:
            unfinished.unlink()
        sync_folder(file.parent)
        return True

    def replace(self, name: str, content: bytes) -> None:
        file = self.folder / name
        self._unfinished(file, content).replace(file)
        sync_folder(file.parent)

    def list(self, folder: str) -> Iterator[str]:
        for path, _, files in os.walk(self.folder / folder):
            inside = Path(path).relative_to(self.folder)
            yield from (str(inside / file) for file in files if not file.startswith(UNFINISHED))

    def delete(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def __str__(self) -> str:
        return str(self.folder)

    def _unfinished(self, file: Path, content: bytes) -> Path:
        """A synced file beside the one that it will become."""
        unfinished = file.with_name(f"{UNFINISHED}{file.name}.{uuid.uuid4().hex}")
        self._write(unfinished, content)
        return unfinished

    def _write(self, file: Path, content: Buffer) -> None:
        if not file.parent.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(file.parent.parent)
        with file.open("xb") as stream:
            try:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            except OSError:
                # On a full disk a part of it would take the little room that there is.
                file.unlink()
                raise


class MemoryStorage(Storage):
    """Files in memory, for the inline engine."""

    def __init__(self) -> None:
        self._files: dict[str, pa.Buffer] = {}

    def open(self, name: str) -> pa.Buffer:
        if name not in self._files:
            raise FileNotFoundError(name)
        return self._files[name]

    def size(self, name: str) -> int:
        return int(self.open(name).size)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return bytes(self.open(name)[start : start + length])

    def write(self, name: str, content: Buffer) -> None:
        if name in self._files:
            raise FileExistsError(name)
        self._files[name] = pa.py_buffer(content)

    def create(self, name: str, content: bytes) -> bool:
        given = pa.py_buffer(content)
        return self._files.setdefault(name, given) is given

    def replace(self, name: str, content: bytes) -> None:
        self._files[name] = pa.py_buffer(content)

    def list(self, folder: str) -> Iterator[str]:
        return (name for name in list(self._files) if name.startswith(f"{folder}/" if folder else ""))

    def delete(self, name: str) -> None:
        self._files.pop(name, None)
