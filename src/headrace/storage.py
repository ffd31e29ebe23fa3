"""Files, local or remote, and how to write them so that they survive a crash."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote

from pyarrow import fs

COMMITS = "_commits"
"""The subfolder of a sink's folder whose files list the committed files."""


def local_path(path: str) -> Path | None:
    """The local path of a plain path or ``file:`` URI; None on another file system.

    Spark lists files by their plain names, but ``input_file_name()`` escapes them: the plain name comes first.

    >>> local_path("file:/data/in/monday%20morning.json").as_posix()
    '/data/in/monday morning.json'
    >>> local_path("s3://bucket/part.json") is None
    True
    """
    if path.startswith("file:"):
        given = Path(re.sub("^file:(//[^/]*)?", "", path))
        return given if given.exists() else Path(unquote(str(given), errors="surrogateescape"))
    return None if "://" in path else Path(path)


def open_binary(path: str) -> BinaryIO:
    """A readable, seekable stream of the file's bytes; raises OSError when it cannot be opened.

    >>> open_binary("file:/no/such/file.json")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file.json'
    """
    local = local_path(path)
    if local is not None:
        return local.open("rb")
    system, inside = fs.FileSystem.from_uri(path)
    return cast(BinaryIO, system.open_input_file(inside))


@contextmanager
def durable_file(file: Path) -> Iterator[BinaryIO]:
    """A stream for a file that appears at the end of the block: whole, and still there after a machine crash."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        with unfinished.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        # On a full disk a part of it would take the little room that there is.
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.replace(file)
    sync_folder(file.parent)


def write_durably(file: Path, text: str) -> None:
    """Write a small file atomically and durably."""
    with durable_file(file) as stream:
        stream.write(text.encode())


def made_once(file: Path, text: str) -> str:
    """The text of a small file, which gets the given one if it does not exist yet."""
    if not file.exists():
        write_durably(file, text)
    return file.read_text(encoding="utf-8")


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a machine crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
