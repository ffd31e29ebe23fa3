"""A text file as chunks of numbered lines, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

CHUNK_BYTES = 16 * 1024 * 1024
MAX_ROW_BYTES = 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NEWLINE, _RETURN, _SPACE, _TAB = b"\n\r \t"

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one chunk that are not blank: where each starts and ends in ``data``, and its number in the file."""

    data: bytes
    starts: Integers
    ends: Integers
    positions: Integers
    together: bool = False
    """Whether ``data`` holds these lines and nothing else, in this order."""

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, rows: slice) -> Lines:
        return Lines(self.data, self.starts[rows], self.ends[rows], self.positions[rows])

    def take(self, indices: Integers) -> Lines:
        return Lines(self.data, self.starts[indices], self.ends[indices], self.positions[indices])

    def with_spaces_for_breaks(self) -> Lines:
        characters = np.frombuffer(self.data, dtype=np.uint8).copy()
        breaks = np.flatnonzero(characters == _NEWLINE)
        inside = breaks < self.ends[np.searchsorted(self.starts, breaks, side="right") - 1]
        characters[breaks[inside]] = _SPACE
        return replace(self, data=characters.tobytes())

    def raw(self) -> list[bytes]:
        data = self.data
        return [data[start:end] for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]

    def raw_at(self, positions: pl.Series, limit: int) -> pl.Series:
        chosen = self.take(np.searchsorted(self.positions, positions.to_numpy()))
        return pl.Series("raw", [line[:limit] for line in chosen.raw()], dtype=pl.Binary)

    def text(self) -> bytes:
        """The lines as one text; sliced out in one piece where they follow each other."""
        if len(self) == 0:
            return b""
        if self.together or self.positions[-1] - self.positions[0] + 1 == len(self):
            start, end = int(self.starts[0]), int(self.ends[-1])
            # A blank line after the last one would be read as a row.
            everything = start == 0 and self.data[end : end + 3] in (b"", b"\n", b"\r\n")
            return self.data if everything else self.data[start:end]
        return b"\n".join(self.raw())


def as_lines(payloads: Sequence[bytes], positions: Integers) -> Lines:
    """Payloads as the lines of a file, each with its position."""
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    ends = np.cumsum(lengths + 1) - 1
    return Lines(b"\n".join([*payloads, b""]), ends - lengths, ends, positions, together=True)


def read_lines(stream: BinaryIO, *, max_row_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Lines]:
    """Chunks of whole lines; a line over the limit is cut just past it, so that its length still shows."""
    rest, line, cutting = b"", 1, False
    block = stream.read(chunk_bytes).removeprefix(_BYTE_ORDER_MARK)
    while block:
        following = stream.read(chunk_bytes)
        if cutting:
            newline = block.find(b"\n")
            block = b"" if newline < 0 else block[newline:]
            cutting = newline < 0
        data = rest + block
        whole = len(data) if not following else data.rfind(b"\n") + 1
        rest, data = data[whole:], data[:whole]
        if len(rest) > max_row_bytes + 1:
            rest, cutting = rest[: max_row_bytes + 2], True
        if data:
            lines, line = _numbered(data, line)
            yield lines
        block = following


def _numbered(data: bytes, first: int) -> tuple[Lines, int]:
    """The lines of a chunk, and the number of the line after them."""
    characters = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(characters == _NEWLINE)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate(([0], ends[:-1] + 1))
    positions = np.arange(first, first + len(ends), dtype=np.int64)
    ends = ends - ((ends > starts) & (characters[ends - 1] == _RETURN))
    kept = ends > starts
    opening = characters[np.minimum(starts, len(data) - 1)]
    padded = kept & ((opening == _SPACE) | (opening == _TAB) | (opening == _RETURN))
    for index in np.flatnonzero(padded).tolist():
        kept[index] = bool(data[starts[index] : ends[index]].strip(b" \t\r"))
    lines = Lines(data, starts, ends, positions)
    return lines if kept.all() else lines.take(np.flatnonzero(kept)), first + len(positions)
