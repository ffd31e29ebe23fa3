"""JSON lines: whole chunks by one strict bulk decode, and line by line only where that refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import polars as pl

from headrace.connectors.base.conversion import settle
from headrace.connectors.base.dead_lines import Verdict, dead_lines
from headrace.connectors.base.decoding import (
    NOT_JSON,
    OUT_OF_RANGE,
    POSITION,
    TOO_LARGE,
    WRONG_TYPE,
    Columns,
    Decoded,
    field_types,
    inner_type,
    plain_types,
    unreadable,
)
from headrace.connectors.base.json_screen import plausible
from headrace.connectors.base.json_verdicts import Judge
from headrace.connectors.base.lines import CHUNK_BYTES, MAX_ROW_BYTES, Integers, Lines, read_lines
from headrace.storage import open_binary

_FAN_OUT = 16
_JUDGED_AT_ONCE = 256
_PAIR_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONG_NUMBER = re.compile(rb"[0-9.]{17}")


class _Refused(Exception):
    """The bulk decoder does not take these lines as they are."""


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Decodes files of one JSON object a line; fields that are not declared are ignored.

    Of two equal keys the first counts, as in the bulk decoder. Numbers and objects in a STRING column become text.
    A decimal given as a JSON number may have 15 digits; longer ones must be sent as text.
    """

    columns: Columns
    max_row_bytes: int = MAX_ROW_BYTES
    chunk_bytes: int = CHUNK_BYTES

    def decode(self, path: str) -> Iterator[Decoded]:
        try:
            with open_binary(path) as stream:
                for lines in read_lines(stream, max_row_bytes=self.max_row_bytes, chunk_bytes=self.chunk_bytes):
                    yield self.decode_lines(lines)
        except (OSError, ValueError) as error:
            yield unreadable(self.columns, str(error))

    def decode_lines(self, lines: Lines) -> Decoded:
        chunk = _Chunk(lines, self.columns, {name: read_type(kind) for name, kind in self.columns.types.items()})
        return chunk.decode(self.max_row_bytes)


@dataclass(frozen=True, slots=True)
class _Chunk:
    lines: Lines
    columns: Columns
    schema: dict[str, pl.DataType]

    def decode(self, max_row_bytes: int) -> Decoded:
        too_large = self.lines.ends - self.lines.starts > max_row_bytes
        doubtful = self._doubtful() & ~too_large
        frames, blocks = self._bulk(np.flatnonzero(~too_large & ~doubtful))
        refused = np.sort(np.concatenate([*blocks, np.flatnonzero(doubtful)]))
        verdicts: dict[int, Verdict] = {}
        for index in np.flatnonzero(too_large).tolist():
            verdicts[index] = (TOO_LARGE, f"the line is longer than {max_row_bytes} bytes")
        if len(refused) > 0:
            frames.extend(self._judged(refused, verdicts))
        read = pl.concat(frames) if frames else pl.DataFrame(schema={**self.schema, POSITION: pl.Int64})
        rows, problems = settle(read if len(frames) < 2 else read.sort(POSITION), self.columns)
        return Decoded(rows, dead_lines(self.lines, verdicts, problems), self.lines)

    def _doubtful(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Lines that the bulk decoder would take but may change: half surrogate pairs, long decimals."""
        doubtful = np.zeros(len(self.lines), dtype=np.bool_)
        data = self.lines.data
        found = [match.start() for match in _PAIR_ESCAPE.finditer(data)] if b"\\" in data else []
        if any(isinstance(leaf, pl.Decimal) for kind in self.columns.types.values() for leaf in plain_types(kind)):
            found.extend(match.start() for match in _LONG_NUMBER.finditer(data))
        if found:
            doubtful[np.searchsorted(self.lines.starts, found, side="right") - 1] = True
        return doubtful

    def _bulk(self, indices: Integers) -> tuple[list[pl.DataFrame], list[Integers]]:
        """Frames of the blocks that decode whole, and the lines of those that do not."""
        if len(indices) == 0:
            return [], []
        try:
            return [self._frame(indices)], []
        except _Refused:
            if len(indices) <= _JUDGED_AT_ONCE:
                return [], [indices]
        likely = plausible(self.lines.take(indices), self.schema)
        if 2 * likely.sum() < len(indices):
            return self._blocks(indices)
        try:
            return [self._frame(indices[likely])], [indices[~likely]]
        except _Refused:
            frames, refused = self._blocks(indices[likely])
            return frames, [*refused, indices[~likely]]

    def _blocks(self, indices: Integers) -> tuple[list[pl.DataFrame], list[Integers]]:
        """Smaller and smaller blocks, so that a few bad lines do not send all others to the judge."""
        frames: list[pl.DataFrame] = []
        refused: list[Integers] = []
        blocks = np.array_split(indices, _FAN_OUT)
        for block in blocks:
            try:
                frames.append(self._frame(block))
            except _Refused:
                refused.append(block)
        if len(refused) == len(blocks) or len(blocks[0]) <= _JUDGED_AT_ONCE:
            return frames, refused
        deeper = [self._blocks(block) for block in refused]
        frames.extend(frame for inner, _ in deeper for frame in inner)
        return frames, [block for _, inner in deeper for block in inner]

    def _judged(self, indices: Integers, verdicts: dict[int, Verdict]) -> list[pl.DataFrame]:
        """The good lines of those refused; the others get their verdict."""
        judge = Judge.of(self.columns)
        good: list[int] = []
        for index, line in zip(indices.tolist(), self.lines.take(indices).raw(), strict=True):
            verdict = judge.verdict(line)
            if verdict is None:
                good.append(index)
            else:
                verdicts[index] = verdict
        return self._halved(np.array(good, dtype=np.int64), verdicts)

    def _halved(self, indices: Integers, verdicts: dict[int, Verdict]) -> list[pl.DataFrame]:
        """The judge and the bulk decoder may still differ on a line: halve until it stands alone."""
        if len(indices) == 0:
            return []
        try:
            return [self._frame(indices)]
        except _Refused as error:
            if len(indices) == 1:
                verdicts[int(indices[0])] = _verdict(str(error))
                return []
        middle = len(indices) // 2
        return self._halved(indices[:middle], verdicts) + self._halved(indices[middle:], verdicts)

    def _frame(self, indices: Integers) -> pl.DataFrame:
        lines = self.lines if len(indices) == len(self.lines) else self.lines.take(indices)
        try:
            frame = pl.read_ndjson(BytesIO(lines.text()), schema=self.schema)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise _Refused(str(error)) from error
        if frame.height != len(lines):
            raise _Refused(f"{frame.height} values in {len(lines)} lines")
        return frame.with_columns(pl.Series(POSITION, lines.positions))


def read_type(declared: pl.DataType) -> pl.DataType:
    """The type in which the bulk decoder reads a column; the conversion to the declared one comes after.

    >>> read_type(pl.List(pl.Date()))
    List(String)
    """
    match declared:
        case pl.Int8() | pl.Int16() | pl.Int32():
            return pl.Int64()
        case pl.Float32():
            return pl.Float64()
        case pl.Decimal() | pl.Binary() | pl.Date() | pl.Datetime():
            return pl.String()
        case pl.List():
            return pl.List(read_type(inner_type(declared)))
        case pl.Struct():
            return pl.Struct({name: read_type(kind) for name, kind in field_types(declared).items()})
        case _:
            return declared


def _verdict(message: str) -> Verdict:
    first_line = message.splitlines()[0]
    if "InvalidNumber" in first_line:
        return OUT_OF_RANGE, first_line
    return (NOT_JSON if "error parsing line" in first_line else WRONG_TYPE), first_line
