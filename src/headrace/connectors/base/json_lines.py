"""JSON lines: Polars decodes whole chunks; where it refuses, each doubtful line is judged on its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from math import inf
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.connectors.base.conversion import settle
from headrace.connectors.base.decoding import (
    FOUND_CHARACTERS,
    POSITION,
    Columns,
    Decoded,
    Decoder,
    Verdict,
    dead_lines,
    decode_apart,
    field_types,
    inner_type,
    mismatch,
    not_utf8,
    too_large,
    with_plain_types,
)
from headrace.connectors.base.lines import CHUNK_BYTES, MAX_ROW_BYTES, Integers, Lines, read_lines

Check = Callable[[Any], Verdict | None]
Mask = npt.NDArray[np.bool_]

_PAIR_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONG_NUMBER = re.compile(rb"[0-9.]{17}")
# Steps over escaped backslashes and whole surrogate pairs, so that the group holds half a pair.
_HALF_PAIR = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_IMPLAUSIBLE: Mapping[type[pl.DataType], str] = {
    pl.Int64: r"(?:[^-0-9n\s]|-?[0-9]+[.eE]|-?[0-9]{19})",
    pl.Float64: r"[^-0-9n\s]",
    pl.Boolean: r"[^tfn\s]",
}
"""How no value of a type begins."""
_EXACT_DIGITS = 15
_BIGGEST = 2**63  # smaller integers are read as 64 bits and narrowed in bulk


@dataclass(frozen=True, slots=True)
class JsonLines(Decoder):
    """Decodes files of one JSON object per line; fields that are not declared are ignored.

    Of two equal keys the first counts, as in Polars. Numbers and objects in a STRING column become text.
    A decimal given as a JSON number may have 15 digits; longer ones must be sent as text.
    """

    max_row_bytes: int = MAX_ROW_BYTES
    chunk_bytes: int = CHUNK_BYTES

    def chunks(self, stream: BinaryIO, name: str) -> Iterator[Decoded]:
        for lines in read_lines(stream, max_row_bytes=self.max_row_bytes, chunk_bytes=self.chunk_bytes):
            yield from decode_apart(self.decode_lines, lines)

    def decode_lines(self, lines: Lines) -> Decoded:
        verdicts = too_large(lines, self.max_row_bytes)
        whole = np.ones(len(lines), dtype=np.bool_)
        whole[list(verdicts)] = False
        bulk = whole & ~self._doubtful(lines)
        frame = self._frame(lines, np.flatnonzero(bulk))
        if isinstance(frame, str):
            # Without this screen, one bad line in a hundred thousand sends them all to the judge: 5 times the work.
            bulk &= self._plausible(lines)
            frame = self._frame(lines, np.flatnonzero(bulk))
        if isinstance(frame, str):
            bulk[:] = False
        frames = [] if isinstance(frame, str) else [frame]
        judged = np.flatnonzero(whole & ~bulk)
        if len(judged) > 0:
            found = zip(judged.tolist(), map(line_judge(self.columns), lines.take(judged).raw()), strict=True)
            bad = {index: verdict for index, verdict in found if verdict is not None}
            verdicts |= bad
            frames.extend(self._halved(lines, judged[~np.isin(judged, list(bad))], verdicts))
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
        """Lines that Polars would take but may change: half surrogate pairs, long decimals."""
        doubtful = np.zeros(len(lines), dtype=np.bool_)
        found = [match.start() for match in _PAIR_ESCAPE.finditer(lines.data)] if b"\\" in lines.data else []
        if _has_decimals(self.columns):
            found.extend(match.start() for match in _LONG_NUMBER.finditer(lines.data))
        if found:
            doubtful[np.searchsorted(lines.starts, found, side="right") - 1] = True
        return doubtful

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
        frame = self._frame(lines, indices)
        if not isinstance(frame, str):
            return [frame]
        if len(indices) == 1:
            verdicts[int(indices[0])] = _polars_verdict(frame)
            return []
        middle = len(indices) // 2
        halves = indices[:middle], indices[middle:]
        return [frame for half in halves for frame in self._halved(lines, half, verdicts)]

    def _frame(self, lines: Lines, indices: Integers) -> pl.DataFrame | str:
        """The rows of lines, or why Polars does not decode them."""
        if len(indices) == 0:
            return self._empty
        chosen = lines if len(indices) == len(lines) else lines.take(indices)
        try:
            frame = pl.read_ndjson(BytesIO(chosen.text()), schema=self._schema)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            return str(error)
        if frame.height != len(chosen):
            return f"{frame.height} values in {len(chosen)} lines"
        return frame.with_columns(pl.Series(POSITION, chosen.positions))


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


def _has_decimals(columns: Columns) -> bool:
    def without(kind: pl.DataType) -> pl.DataType:
        return pl.String() if isinstance(kind, pl.Decimal) else kind

    return any(with_plain_types(kind, without) != kind for kind in columns.types.values())


def line_judge(columns: Columns) -> Callable[[bytes], Verdict | None]:
    """Judges single lines: None for a good one. Times, decimals and small integers are left to the conversion."""
    number = Decimal if _has_decimals(columns) else float
    # Polars keeps the first of two equal keys, so the judge does too.
    decoder = json.JSONDecoder(
        parse_float=number, parse_constant=_refuse, object_pairs_hook=lambda pairs: dict(reversed(pairs))
    )
    check = _fields_check("", columns.types)

    def verdict(line: bytes) -> Verdict | None:
        if b"\\u" in line and (half := next((found[1] for found in _HALF_PAIR.finditer(line) if found[1]), None)):
            return "NOT_UTF8", f"escape {half.decode()} is half of a surrogate pair"
        if (broken := not_utf8(line)) is not None:
            return broken
        try:
            value = decoder.decode(line.decode())
        except json.JSONDecodeError as error:
            return "NOT_JSON", f"{error.msg} at character {error.pos + 1}"
        except (ValueError, RecursionError):  # a number or a nesting beyond Python's limits: Polars decides
            return None
        if not isinstance(value, dict):
            return "NOT_AN_OBJECT", f"found {json.dumps(value, default=str)[:FOUND_CHARACTERS]}"
        return check(value)

    return verdict


def _fields_check(prefix: str, types: Mapping[str, pl.DataType]) -> Check:
    found = ((name, _check(f"{prefix}{name}", kind)) for name, kind in types.items())
    checks = [(name, check) for name, check in found if check is not None]

    def first_problem(value: Mapping[str, Any]) -> Verdict | None:
        for name, check in checks:
            held = value.get(name)
            if held is not None and (problem := check(held)) is not None:
                return problem
        return None

    return first_problem


def _check(path: str, declared: pl.DataType) -> Check | None:
    """The check of one column; None where Polars takes any value."""

    def wrong(value: Any, reason: str = "WRONG_TYPE") -> Verdict:
        return reason, mismatch(path, declared, json.dumps(value, default=str, ensure_ascii=False))

    def typed(check: Check, *allowed: type) -> Check:
        return lambda value: check(value) if type(value) in allowed else wrong(value)

    def bounded(fits: Callable[[Any], bool], *allowed: type) -> Check:
        return typed(lambda value: None if fits(value) else wrong(value, "OUT_OF_RANGE"), *allowed)

    match declared:
        case pl.Boolean():
            return typed(lambda _: None, bool)
        case pl.Int8() | pl.Int16() | pl.Int32() | pl.Int64():
            return bounded(range(-_BIGGEST, _BIGGEST).__contains__, int)
        case pl.Float32() | pl.Float64():
            return bounded(lambda value: value not in (inf, -inf), float, int, Decimal)
        case pl.Decimal():
            exact = bounded(lambda value: len(value.as_tuple().digits) <= _EXACT_DIGITS, Decimal)
            return lambda value: exact(value) if type(value) is Decimal else None
        case pl.List():
            inner = _fields_check(path, {"[]": inner_type(declared)})
            return typed(lambda value: next(filter(None, (inner({"[]": item}) for item in value)), None), list)
        case pl.Struct():
            return typed(_fields_check(f"{path}.", field_types(declared)), dict)
        case _:
            return None


def _refuse(constant: str) -> Any:
    raise json.JSONDecodeError(f"{constant} is not a JSON number", constant, 0)
