"""CSV files with one record per line: Polars reads well-formed lines together, the others are split one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.connectors.base.conversion import settle
from headrace.connectors.base.decoding import (
    POSITION,
    Decoded,
    Decoder,
    Verdict,
    dead_lines,
    decode_apart,
    not_utf8,
    too_large,
    type_name,
)
from headrace.connectors.base.lines import CHUNK_BYTES, MAX_ROW_BYTES, Integers, Lines, as_lines, read_lines
from headrace.errors import DefinitionError

Fields = list[str | None]
_WHOLE_FIELD = r'(?:"(?:[^"]|"")*"|[^",]*)'
_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|(?!")([^,]*))(,|$)')


@dataclass(frozen=True, slots=True)
class CsvLines(Decoder):
    """Decodes CSV files; with a header, columns are matched by name and others are ignored.

    An empty field is null, a quoted empty field is empty text; a quote inside quotes is doubled.
    """

    header: bool = True
    max_row_bytes: int = MAX_ROW_BYTES
    chunk_bytes: int = CHUNK_BYTES

    def __post_init__(self) -> None:
        for name, declared in self.columns.types.items():
            if declared.is_nested():
                raise DefinitionError(
                    "CSV_NESTED_COLUMN",
                    f"column {name} is {type_name(declared)}; a CSV field is one value. Declare it STRING.",
                )

    def chunks(self, stream: BinaryIO, name: str) -> Iterator[Decoded]:
        names = None if self.header else self.columns.names
        for lines in read_lines(stream, max_row_bytes=self.max_row_bytes, chunk_bytes=self.chunk_bytes):
            if names is None and len(lines) > 0:
                names = self._header(lines.take(np.array([0], dtype=np.int64)).raw()[0])
                lines = lines.take(np.arange(1, len(lines)))
            if names is not None and len(lines) > 0:
                yield from decode_apart(partial(self.decode_lines, header=names), lines)

    def _header(self, line: bytes) -> list[str]:
        names = [field or "" for field in _split(line.decode()) or []]
        missing = [name for name in self.columns.names if names.count(name) != 1]
        if missing:
            raise ValueError(
                f"the header {', '.join(names)} does not name {', '.join(missing)} once; "
                f"expected {', '.join(self.columns.names)}"
            )
        return names

    def decode_lines(self, lines: Lines, header: list[str] | None = None) -> Decoded:
        """Lines whose fields stand in the order of the header, or else of the declared columns."""
        names = self.columns.names if header is None else header
        verdicts: dict[int, Verdict] = {}
        if not_utf8(lines.data) is not None:
            judged = enumerate(map(not_utf8, lines.raw()))
            verdicts = {index: verdict for index, verdict in judged if verdict is not None}
        verdicts |= too_large(lines, self.max_row_bytes)
        if lines.data.count(b"\n") > len(lines):
            broken = np.flatnonzero(_counts(lines, "\n")).tolist()
            verdicts |= dict.fromkeys(broken, ("NOT_CSV", "the record has a line break"))
        left = np.ones(len(lines), dtype=np.bool_)
        left[list(verdicts)] = False
        well_formed = _counts(lines, ",") == len(names) - 1
        quoted = np.flatnonzero(left & (_counts(lines, '"') > 0))
        well_formed[quoted] = _well_formed(lines.take(quoted), len(names))
        odd = np.flatnonzero(left & ~well_formed)
        requoted: dict[int, bytes] = {}
        for index, line in zip(odd.tolist(), lines.take(odd).raw(), strict=True):
            fields = _split(line.decode())
            if fields is None:
                verdicts[index] = ("NOT_CSV", 'the quotes " do not match')
            elif len(fields) != len(names):
                detail = f"{len(fields)} fields, expected {len(names)}: {', '.join(names)}"
                verdicts[index] = ("WRONG_FIELD_COUNT", detail)
            else:
                whole = ("" if field is None else '"' + field.replace('"', '""') + '"' for field in fields)
                requoted[index] = ",".join(whole).encode()
        left[list(verdicts)] = False
        kept = np.flatnonzero(left)
        texts = lines.take(kept)
        if requoted:
            chosen = zip(kept.tolist(), texts.raw(), strict=True)
            texts = as_lines([requoted.get(index, line) for index, line in chosen], texts.positions)
        rows, problems = settle(self._read(texts, names), self.columns)
        return Decoded(rows, dead_lines(lines, verdicts, problems), lines)

    def _read(self, lines: Lines, names: list[str]) -> pl.DataFrame:
        """The declared columns of lines that Polars splits correctly."""
        frame = pl.DataFrame(schema=dict.fromkeys(map(str, range(len(names))), pl.String))
        if len(lines) > 0:
            text = b"\n".join(lines.raw()) if b"\r" in lines.data else lines.text()
            quote = '"' if b'"' in text else None
            frame = pl.read_csv(BytesIO(text), has_header=False, quote_char=quote, schema=frame.schema)
        chosen = [frame.to_series(names.index(name)).alias(name) for name in self.columns.names]
        binary = [pl.col(name).cast(pl.Binary) for name, kind in self.columns.types.items() if kind == pl.Binary]
        return pl.DataFrame([*chosen, pl.Series(POSITION, lines.positions)]).with_columns(binary)


def _well_formed(lines: Lines, fields: int) -> npt.NDArray[np.bool_]:
    """Which lines have the given number of fields and quotes only around whole ones: Polars splits them correctly."""
    texts = pl.Series(lines.raw(), dtype=pl.Binary).cast(pl.String)
    return texts.str.contains(f"^{_WHOLE_FIELD}(?:,{_WHOLE_FIELD}){{{fields - 1}}}$").to_numpy()


def _split(line: str) -> Fields | None:
    """The fields of a line; None when its quotes do not match."""
    # By hand: on '"a"b', '"a,b' or '5" pipe' Polars fails for the whole chunk, and pyarrow takes the first two as
    # values, the second over the line's end. Only such lines come here.
    fields: Fields = []
    position, more = 0, True
    while more:
        found = _FIELD.match(line, position)
        if found is None:
            return None
        quoted, plain, end = found.groups()
        fields.append(plain or None if quoted is None else quoted.replace('""', '"'))
        position, more = found.end(), end != ""
    return fields


def _counts(lines: Lines, character: str) -> Integers:
    at = np.flatnonzero(np.frombuffer(lines.data, dtype=np.uint8) == ord(character))
    return np.searchsorted(at, lines.ends) - np.searchsorted(at, lines.starts)
