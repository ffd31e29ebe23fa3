"""JSON lines: Polars decodes whole chunks; where it refuses, each doubtful line is judged on its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.base.conversion import settle
from headrace.connectors.base.decoding import (
    POSITION,
    Decoded,
    Decoder,
    Verdict,
    dead_lines,
    decode_apart,
    field_types,
    inner_type,
    too_large,
    with_plain_types,
)
from headrace.connectors.base.json_line import line_judge, with_exact_numbers
from headrace.connectors.base.lines import CHUNK_BYTES, MAX_ROW_BYTES, Integers, Lines, as_lines, read_lines

Mask = npt.NDArray[np.bool_]

_PAIR_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
# After the name of a STRING or DECIMAL column: what Polars would write anew as text; or a name that is escaped.
_INEXACT: Mapping[type[pl.DataType], str] = {
    pl.String: r"(?:(?:[{\[].*)?(?:-?[0-9]+[.eE]|-0|-?[0-9]{39})|[{\[].*\\)",
    pl.Decimal: r"(?:[{\[].*)?-?(?:[0-9.]{17}|[0-9.]+[eE])",
}
_ESCAPED_NAME = r'\\[^"]*"\s*:'
_IMPLAUSIBLE: Mapping[type[pl.DataType], str] = {
    pl.Int64: r"(?:[^-0-9n\s]|-?[0-9]+[.eE]|-?[0-9]{19})",
    pl.Float64: r"[^-0-9n\s]",
    pl.Boolean: r"[^tfn\s]",
    pl.String: r"-?(?:[0-9]{39}|[0-9.]+[eE])",
}
"""How no value of a type begins."""


@dataclass(frozen=True, slots=True)
class JsonLines(Decoder):
    """Decodes files of one JSON object per line; fields that are not declared are ignored.

    Of two equal keys the first counts, as in Polars. Numbers and objects in a STRING column become text. The texts
    ``NaN``, ``Infinity`` and ``-Infinity`` are numbers of a FLOAT or DOUBLE column.
    """

    max_row_bytes: int = MAX_ROW_BYTES
    chunk_bytes: int = CHUNK_BYTES
    keeps_numbers: bool = True
    """Whether numbers in STRING and DECIMAL columns keep all their digits, for which Python reads their lines."""

    def chunks(self, stream: BinaryIO, name: str) -> Iterator[Decoded]:
        for lines in read_lines(stream, max_row_bytes=self.max_row_bytes, chunk_bytes=self.chunk_bytes):
            yield from decode_apart(self.decode_lines, lines)

    def decode_lines(self, lines: Lines) -> Decoded:
        verdicts = too_large(lines, self.max_row_bytes)
        whole = np.ones(len(lines), dtype=np.bool_)
        whole[list(verdicts)] = False
        bulk = whole & ~self._doubtful(lines)
        frame = self._frame(_chosen(lines, bulk))
        if isinstance(frame, str):
            # Without this screen, one bad line in a hundred thousand sends them all to the judge: 5 times the work.
            bulk &= self._plausible(lines)
            frame = self._frame(_chosen(lines, bulk))
        if isinstance(frame, str):
            bulk[:] = False
        elif self.keeps_numbers and (inexact := self._inexact(lines, frame)) is not None:
            frame, bulk = frame.filter(~inexact[bulk]), bulk & ~inexact
        frames = [] if isinstance(frame, str) else [frame]
        judged = np.flatnonzero(whole & ~bulk)
        if len(judged) > 0:
            found = zip(judged.tolist(), map(line_judge(self.columns), lines.take(judged).raw()), strict=True)
            bad = {index: verdict for index, verdict in found if verdict is not None}
            verdicts |= bad
            good = judged[~np.isin(judged, list(bad))]
            texts = lines.take(good)
            if self.keeps_numbers:
                texts = as_lines(list(map(with_exact_numbers(self.columns), texts.raw())), texts.positions)
            frames.extend(self._halved(texts, good, verdicts))
        read = frames[0] if len(frames) == 1 else pl.concat([self._empty, *frames]).sort(POSITION)
        rows, problems = settle(read, self.columns)
        return Decoded(rows, dead_lines(lines, verdicts, problems), lines)

    @property
    def _schema(self) -> dict[str, pl.DataType]:
        return {name: read_type(kind) for name, kind in self.columns.types.items()}

    @property
    def _empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema={**self._schema, POSITION: pl.Int64()})

    def _doubtful(self, lines: Lines) -> Mask:
        """Lines that may have half a surrogate pair, which Polars would change, or a NaN, which it would refuse."""
        doubtful = np.zeros(len(lines), dtype=np.bool_)
        found = [match.start() for match in _PAIR_ESCAPE.finditer(lines.data)] if b"\\" in lines.data else []
        if any(_numbers_as_text(kind) != kind for kind in self._schema.values()):
            found.extend(place for end in (b'NaN"', b'Infinity"') for place in _places(lines.data, end))
        if found:
            doubtful[np.searchsorted(lines.starts, found, side="right") - 1] = True
        return doubtful

    def _inexact(self, lines: Lines, read: pl.DataFrame) -> Mask | None:
        """Lines with numbers that Polars has not read digit by digit; None if there can be none."""
        types = self.columns.types
        columns = [(name, kind) for name, kind in types.items() if _looks_like_number(read[name], kind)]
        if not columns:
            return None
        patterns = [_ESCAPED_NAME] if b"\\" in lines.data else []
        for leaf, pattern in _INEXACT.items():
            keys = [key for name, kind in columns for key in _keys(name, kind, leaf)]
            patterns += [rf'"(?:{"|".join(keys)})"\s*:\s*{pattern}'] if keys else []
        # Each line with what is between it and the next: a wrong guess costs time, because Python reads exactly.
        bounds, data = pa.py_buffer(np.append(lines.starts, len(lines.data))), pa.py_buffer(lines.data)
        texts = pa.LargeStringArray.from_buffers(len(lines), bounds, data)
        return np.asarray(pc.match_substring_regex(texts, "|".join(patterns)))

    def _plausible(self, lines: Lines) -> Mask:
        """Lines that look good; a wrong guess costs time, never a row, because the decoder decides."""
        line = pl.col("line")
        good = line.str.contains(_LOOKS_LIKE_JSON)
        for name, kind in self._schema.items():
            if type(kind) in _IMPLAUSIBLE:
                good &= ~line.str.contains(rf'"{re.escape(name)}"\s*:\s*{_IMPLAUSIBLE[type(kind)]}')
        texts = pl.Series("line", [raw.decode(errors="replace") for raw in lines.raw()], dtype=pl.String)
        return texts.to_frame().select(good).to_series().to_numpy()

    def _halved(self, lines: Lines, indices: Integers, verdicts: dict[int, Verdict]) -> list[pl.DataFrame]:
        """Frames of lines that the judge has passed; one that Polars still refuses is found by halving."""
        frame = self._frame(lines, judged=True)
        if not isinstance(frame, str):
            return [frame]
        if len(lines) == 1:
            verdicts[int(indices[0])] = _polars_verdict(frame)
            return []
        middle = len(lines) // 2
        halves = slice(middle), slice(middle, None)
        return [frame for half in halves for frame in self._halved(lines[half], indices[half], verdicts)]

    def _frame(self, lines: Lines, *, judged: bool = False) -> pl.DataFrame | str:
        """The rows of lines, or why Polars does not decode them; in judged ones text may stand for a number."""
        if len(lines) == 0:
            return self._empty
        try:
            schema = {name: _numbers_as_text(kind) for name, kind in self._schema.items()} if judged else self._schema
            frame = pl.read_ndjson(BytesIO(lines.text()), schema=schema).cast(pl.Schema(self._schema))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            return str(error)
        if frame.height != len(lines):
            return f"{frame.height} values in {len(lines)} lines"
        return frame.with_columns(pl.Series(POSITION, lines.positions))


def _chosen(lines: Lines, mask: Mask) -> Lines:
    return lines if mask.all() else lines.take(np.flatnonzero(mask))


def _places(data: bytes, wanted: bytes) -> Iterator[int]:
    """Where some bytes stand; much faster than a regular expression where they do not."""
    place = data.find(wanted)
    while place >= 0:
        yield place
        place = data.find(wanted, place + 1)


def _numbers_as_text(declared: pl.DataType) -> pl.DataType:
    return with_plain_types(declared, lambda kind: pl.String() if isinstance(kind, pl.Float64) else kind)


def _json_shape(depth: int) -> str:
    """A regular expression for a JSON object in which values are nested at most ``depth`` deep."""
    text = r'"(?:[^"\\\x00-\x1f\x{FFFD}]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'
    value = rf"(?:{text}|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)"
    for _ in range(depth):
        member = rf"\s*{text}\s*:\s*{value}\s*"
        item = rf"\s*{value}\s*"
        value = rf"(?:{value}|\{{(?:{member}(?:,{member})*|\s*)\}}|\[(?:{item}(?:,{item})*|\s*)\])"
    return rf"^\s*\{{{member}(?:,{member})*\}}\s*$"


_LOOKS_LIKE_JSON = _json_shape(2)


def read_type(declared: pl.DataType) -> pl.DataType:
    """The type in which Polars reads a column; the conversion to the declared type comes after."""

    def plain(kind: pl.DataType) -> pl.DataType:
        match kind:
            case pl.Int8() | pl.Int16() | pl.Int32():
                return pl.Int64()
            case pl.Float32():
                return pl.Float64()
            case pl.Decimal() | pl.Binary() | pl.Date() | pl.Datetime():
                return pl.String()
            case _:
                return kind

    return with_plain_types(declared, plain)


def _polars_verdict(message: str) -> Verdict:
    first_line = message.splitlines()[0]
    if "InvalidNumber" in first_line:
        return "OUT_OF_RANGE", first_line
    return ("NOT_JSON" if "error parsing line" in first_line else "WRONG_TYPE"), first_line


def _keys(name: str, declared: pl.DataType, leaf: type[pl.DataType]) -> Iterator[str]:
    """The names in JSON whose values are of a plain type, or lists of it, in a column and its fields."""
    match declared:
        case pl.List():
            yield from _keys(name, inner_type(declared), leaf)
        case pl.Struct():
            for field, kind in field_types(declared).items():
                yield from _keys(field, kind, leaf)
        case _ if isinstance(declared, leaf):
            yield pl.escape_regex(json.dumps(name, ensure_ascii=False)[1:-1])


def _looks_like_number(values: pl.Series, declared: pl.DataType) -> bool:
    """Whether a text that Polars has read may have been a number, an object or a list."""
    match declared:
        case pl.String() | pl.Decimal():
            return bool(values.str.contains(r"^[-0-9{\[]").any())
        case pl.List():
            return _looks_like_number(values.explode(empty_as_null=False, keep_nulls=False), inner_type(declared))
        case pl.Struct():
            return any(
                _looks_like_number(values.struct.field(name), kind) for name, kind in field_types(declared).items()
            )
        case _:
            return False
