"""The list of a batch's files: ``hr.to_files`` writes it, and all who read its folder go by it. No Spark."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.json_codec import decode, encode
from headrace.nodes import ResultVersions

_CHECKSUM = b',"checksum":'


@dataclass(frozen=True, slots=True)
class BatchListing:
    """The files of a batch and how to read them; the list of commits has one for each batch."""

    format: str
    schema: str
    """The columns as DDL text."""
    files: tuple[str, ...]
    rows: int
    generation: int
    batch: int
    token: str
    versions: ResultVersions | None

    def to_bytes(self) -> bytes:
        """As JSON, with a checksum of all that is before it."""
        return _sealed(json.dumps(encode(self), separators=(",", ":")).encode())

    @classmethod
    def from_bytes(cls, content: bytes, *, file: str) -> BatchListing:
        """From its file; one that was truncated or changed is an error that names it."""
        said = content.rpartition(_CHECKSUM)[0] + b"}"
        if content != _sealed(said):
            raise HeadraceError(
                "COMMIT_DAMAGED",
                f"{file!r} was truncated or changed, so nobody knows which files of its batch count. Put it back: "
                "_commit.json in the batch's own folder and the file of that name in _commits are the same.",
            )
        return decode(cls, json.loads(said))


def read_listing(file: Path) -> BatchListing:
    """The listing in a file."""
    return BatchListing.from_bytes(file.read_bytes(), file=str(file))


def _sealed(said: bytes) -> bytes:
    return said[:-1] + _CHECKSUM + b"%d}" % zlib.crc32(said)
