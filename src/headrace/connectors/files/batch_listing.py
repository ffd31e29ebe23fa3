"""The list of a batch's files: ``hr.to_files`` writes it, and all who read its folder go by it. No Spark."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.json_codec import decode, encode
from headrace.nodes import ResultVersions


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

    def to_text(self) -> str:
        """As JSON, with a checksum of all else that is in it."""
        said = encode(self)
        return json.dumps({**said, "checksum": _checksum(said)}, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: bytes, *, file: str) -> BatchListing:
        """From its file; one that was truncated or changed is an error that names it."""
        try:
            said = json.loads(text)
            is_whole = said.pop("checksum") == _checksum(said)
        except (ValueError, LookupError, TypeError, AttributeError):
            is_whole = False
        if not is_whole:
            raise HeadraceError(
                "COMMIT_DAMAGED",
                f"{file!r} was truncated or changed, so nobody knows which files of its batch count. Put it back: "
                "_commit.json in the batch's own folder and the file of that name in _commits are the same.",
            )
        return decode(cls, said)


def read_listing(file: Path) -> BatchListing:
    """The listing in a file."""
    return BatchListing.from_text(file.read_bytes(), file=str(file))


def _checksum(said: Any) -> int:
    return zlib.crc32(json.dumps(said).encode())
