"""What a decoder gives back: good rows, dead rows, and the reason for each dead row."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Protocol, Self, TypeVar

import numpy as np
import polars as pl

from headrace.connectors.base.lines import Integers, Lines
from headrace.errors import DefinitionError, HeadraceError
from headrace.event_time.tracker import WHOLE
from headrace.rendering import finite
from headrace.schemas import spark_type
from headrace.storage import open_binary

POSITION = "__position"
RAW_BYTES = 64 * 1024
FOUND_CHARACTERS = 200
_FIRST_DAY, _LAST_DAY = -96_465_291, 95_026_235
_UNITS_A_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}

PROBLEM_SCHEMA = {"position": pl.Int64, "reason": pl.String, "detail": pl.String}
DEAD_SCHEMA: Mapping[str, type[pl.DataType]] = {**PROBLEM_SCHEMA, "raw": pl.Binary}
Verdict = tuple[str, str]
"""Reason and detail of a dead row."""
FAILURES = (Exception, pl.exceptions.PanicException)
"""What decoders raise on bytes that nobody thought of; a panic of Polars is no ``Exception``."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The declared columns in order, and which of them must not be null."""

    types: Mapping[str, pl.DataType]
    required: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        return list(self.types)


@dataclass(frozen=True, slots=True)
class Decoded:
    """One chunk of a source: ``rows`` (declared columns and position) and ``dead`` together are all rows read.

    A decoder fills the first four fields; the source's reader adds where the chunk came from and when it arrived.
    """

    rows: pl.DataFrame
    dead: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=DEAD_SCHEMA))
    lines: Lines | None = None
    """The text that the rows were read from, if there is any."""
    skipped: int = 0
    """Messages that carry no row, such as the tombstone after a delete."""
    origin: str = ""
    """The file or topic partition."""
    arrived: int | pl.Series = 0
    """Arrival time in microseconds: one for all rows, or one for each."""
    partition: str = WHOLE
    """The source's partition, if it has any: each has its own watermark."""
    lost: int = 0
    """Rows before this chunk that the source no longer has."""

    @classmethod
    def of_letter(cls, types: Mapping[str, pl.DataType], reason: str, detail: str, *, position: int = 0) -> Decoded:
        """A dead letter that concerns no single row, and no row."""
        rows = pl.DataFrame(schema={**types, POSITION: pl.Int64()})
        return cls(rows, _letter(position, reason, detail, b""))

    def raw(self, rows: pl.DataFrame) -> pl.Series:
        """The bytes that some of the good rows came from: their lines, or JSON where the source holds no text."""
        if self.lines is not None:
            return self.lines.raw_at(rows[POSITION], RAW_BYTES)
        return as_json(rows.select(name for name in self.rows.columns if name != POSITION))


def first(chunks: Iterable[Decoded], most: int) -> Iterator[Decoded]:
    """The first rows of chunks, good and dead ones together; nothing after them is read."""
    for chunk in chunks:
        positions = pl.concat([chunk.rows[POSITION], chunk.dead["position"]]).sort()
        if positions.len() < most:
            most -= positions.len()
            yield chunk
            continue
        kept, dead = chunk.rows[POSITION] <= positions[most - 1], chunk.dead["position"] <= positions[most - 1]
        arrived = chunk.arrived if isinstance(chunk.arrived, int) else chunk.arrived.filter(kept)
        yield replace(chunk, rows=chunk.rows.filter(kept), dead=chunk.dead.filter(dead), arrived=arrived)
        return


class Undecoded(Protocol):
    """Rows that are still bytes, with their positions."""

    @property
    def positions(self) -> Integers: ...

    def raw(self) -> Sequence[bytes | None]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice) -> Self: ...


U = TypeVar("U", bound=Undecoded)


def decode_apart(decode: Callable[[U], Decoded], given: U) -> Iterator[Decoded]:
    """Decoded rows; where the decoder fails it gets halves, down to the row that it fails on, which is dead."""
    try:
        decoded = decode(given)
    except FAILURES as error:
        detail = failure(error)
        if len(given) > 1:
            middle = len(given) // 2
            yield from decode_apart(decode, given[:middle])
            yield from decode_apart(decode, given[middle:])
            return
        dead = _letter(int(given.positions[0]), "UNDECODABLE", detail, (given.raw()[0] or b"")[:RAW_BYTES])
        decoded = replace(decode(given[:0]), dead=dead)
    yield decoded


def failure(error: BaseException) -> str:
    """What a decoder says of bytes that it failed on, in a line; raised again if it is not about the bytes."""
    # Arrow's own lack of memory comes of a size that broken bytes claim.
    if isinstance(error, HeadraceError) or type(error) is MemoryError:
        raise error
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@dataclass(frozen=True, slots=True)
class Decoder(ABC):
    """Reads one file chunk by chunk; a broken file gives dead rows, never an exception."""

    columns: Columns

    def decode(self, path: str) -> Iterator[Decoded]:
        """The chunks of a file, and one dead row for the file, or the rest of it, if it cannot be read."""
        try:
            with open_binary(path) as stream:
                yield from self.chunks(stream, path.rstrip("/").rpartition("/")[2])
        except FAILURES as error:
            yield Decoded.of_letter(self.columns.types, "FILE_UNREADABLE", failure(error))

    @abstractmethod
    def chunks(self, stream: BinaryIO, name: str) -> Iterator[Decoded]:
        """The chunks of an open file of this name."""


def _letter(position: int, reason: str, detail: str, raw: bytes) -> pl.DataFrame:
    return pl.DataFrame({"position": position, "reason": reason, "detail": detail, "raw": raw}, schema=DEAD_SCHEMA)


def too_large(lines: Lines, most: int) -> dict[int, Verdict]:
    """The verdicts of lines that are too long, by their index in the chunk."""
    found = np.flatnonzero(lines.ends - lines.starts > most).tolist()
    return dict.fromkeys(found, ("TOO_LARGE", f"the line is longer than {most} bytes"))


def not_utf8(line: bytes) -> Verdict | None:
    r"""The verdict of a line that is not UTF-8 text.

    >>> not_utf8(b"a\xff")
    ('NOT_UTF8', 'byte 0xff at offset 1 is not UTF-8')
    """
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return "NOT_UTF8", f"byte 0x{line[error.start]:02x} at offset {error.start} is not UTF-8"
    return None


def dead_lines(lines: Lines, verdicts: Mapping[int, Verdict], problems: pl.DataFrame) -> pl.DataFrame:
    """Dead rows in file order: ``verdicts`` by a line's index in the chunk, and ``problems`` of single values."""
    if not verdicts and problems.height == 0:
        return pl.DataFrame(schema=DEAD_SCHEMA)
    judged = [(int(lines.positions[index]), *verdict) for index, verdict in verdicts.items()]
    dead = pl.concat([pl.DataFrame(judged, schema=PROBLEM_SCHEMA, orient="row"), problems]).sort("position")
    return dead.with_columns(lines.raw_at(dead["position"], RAW_BYTES))


def as_json(rows: pl.DataFrame) -> pl.Series:
    """Each row as JSON text, for sources that hold no text."""
    # Times become text first, because Python's own objects end with the year 9999.
    plain = rows.select(readable(pl.col(name), kind).alias(name) for name, kind in rows.schema.items())
    texts = (json.dumps(finite(row), default=_as_text, ensure_ascii=False) for row in plain.to_dicts())
    return pl.Series("raw", [text.encode()[:RAW_BYTES] for text in texts], dtype=pl.Binary)


def _as_text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def readable(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """A value with its times as text; durations and times outside the calendar become numbers of their unit.

    >>> times = pl.DataFrame({"at": [0, 2**63 - 1, None]}, schema={"at": pl.Datetime("us")})
    >>> times.select(readable(pl.col("at"), pl.Datetime("us"))).to_series().to_list()
    ['1970-01-01 00:00:00.000000', '9223372036854775807', None]
    """
    match kind:
        case pl.Datetime() | pl.Date():
            text = pl.when(in_calendar(value, kind)).then(value).cast(pl.String)
            return pl.coalesce(text, value.to_physical().cast(pl.String))
        case pl.Duration():
            return value.to_physical().cast(pl.String)
        case pl.Array():
            return readable(value.arr.to_list(), pl.List(kind.inner))
        case pl.Map():
            entries = pl.List(pl.Struct({"key": kind.key, "value": kind.value}))
            return readable(value.cast(entries), entries)
        case pl.List():
            return value.list.eval(readable(pl.element(), inner_type(kind)))
        case pl.Struct():
            fields = (
                readable(value.struct.field(name), inner).alias(name) for name, inner in field_types(kind).items()
            )
            return pl.when(value.is_not_null()).then(pl.struct(*fields))
        case _:
            return value


def in_calendar(time: pl.Expr, kind: pl.Datetime | pl.Date) -> pl.Expr:
    """Whether a time can be written: years from about -262,000 to 262,000."""
    units = _UNITS_A_DAY[kind.time_unit] if isinstance(kind, pl.Datetime) else 1
    return (time.to_physical() // units).is_between(_FIRST_DAY, _LAST_DAY)


def type_name(declared: pl.DataType) -> str:
    """A type as Spark writes it.

    >>> type_name(pl.List(pl.Datetime("us", "UTC")))
    'ARRAY<TIMESTAMP>'
    """
    match declared:
        case pl.List():
            return f"ARRAY<{type_name(inner_type(declared))}>"
        case pl.Struct():
            fields = (f"{name}: {type_name(kind)}" for name, kind in field_types(declared).items())
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            try:
                return spark_type(declared, "").simpleString().upper()
            except DefinitionError:
                return str(declared).upper()


def mismatch(path: str, declared: pl.DataType, found: str) -> str:
    """The detail of a dead row: the column, its declared type and what was found."""
    return f"column {path} is {type_name(declared)}, found {found[:FOUND_CHARACTERS]}"


def inner_type(declared: pl.List) -> pl.DataType:
    """The type of a list's items."""
    return pl.Schema({"item": declared.inner})["item"]


def field_types(declared: pl.Struct) -> Mapping[str, pl.DataType]:
    """The types of a struct's fields by name."""
    return pl.Schema({field.name: field.dtype for field in declared.fields})


def with_plain_types(declared: pl.DataType, change: Callable[[pl.DataType], pl.DataType]) -> pl.DataType:
    """A type with every type in it that is neither list nor struct changed."""
    match declared:
        case pl.List():
            return pl.List(with_plain_types(inner_type(declared), change))
        case pl.Struct():
            return pl.Struct({name: with_plain_types(kind, change) for name, kind in field_types(declared).items()})
        case _:
            return change(declared)
