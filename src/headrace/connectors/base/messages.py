"""Rows that come as messages (of Kafka, MQTT): each payload one row, decoded by the thousand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal, Protocol, runtime_checkable

import fastavro
import numpy as np
import polars as pl

from headrace.connectors.base.conversion import settle
from headrace.connectors.base.csv_lines import CsvLines
from headrace.connectors.base.decoding import (
    DEAD_SCHEMA,
    NO_VALUE,
    NOT_AVRO,
    NOT_CSV,
    POSITION,
    RAW_BYTES,
    Columns,
    Decoded,
    mismatch,
)
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.lines import Integers, Lines
from headrace.errors import DefinitionError

Format = Literal["json", "csv", "raw", "avro"]
VALUE = "value"


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payloads by their positions: those that are there as lines, and the positions of messages without one.

    >>> Payloads.of([b"{}", None, b"[1]"], np.array([4, 5, 9])).listed()
    [b'{}', None, b'[1]']
    """

    lines: Lines
    """Only spaces and line ends stand between them."""
    missing: Integers

    @classmethod
    def of(cls, payloads: Sequence[bytes | None], positions: Integers) -> Payloads:
        """Payloads one by one."""
        if None not in payloads:
            return cls(as_lines(payloads, positions), positions[:0])  # type: ignore[arg-type]
        there = np.fromiter((payload is not None for payload in payloads), np.bool_, len(payloads))
        present = [payload for payload in payloads if payload is not None]
        return cls(as_lines(present, positions[there]), positions[~there])

    @property
    def positions(self) -> Integers:
        """Those of all messages, in order."""
        there = self.lines.positions
        return np.sort(np.concatenate([there, self.missing])) if len(self.missing) else there

    def listed(self) -> list[bytes | None]:
        """One by one, in the order of their positions."""
        found: list[bytes | None] = [*self.lines.raw()]
        if not len(self.missing):
            return found
        all_of_them: list[bytes | None] = [None] * (len(found) + len(self.missing))
        for place, payload in zip(np.searchsorted(self.positions, self.lines.positions).tolist(), found, strict=True):
            all_of_them[place] = payload
        return all_of_them

    @property
    def dead(self) -> pl.DataFrame:
        """Dead letters for messages without a payload."""
        letters = [(position, NO_VALUE, "the message has no value", b"") for position in self.missing.tolist()]
        return pl.DataFrame(letters, schema=DEAD_SCHEMA, orient="row")


class MessageDecoder(Protocol):
    """Makes rows of payloads."""

    def decode(self, payloads: Payloads) -> Decoded:
        """Good rows and dead ones; together they are all of them."""


@runtime_checkable
class KeyedDecoder(Protocol):
    """Makes rows of payloads together with their keys and times."""

    def decode_keyed(self, payloads: Payloads, keys: Sequence[bytes | None], arrived: Integers) -> Decoded:
        """Good rows and dead ones; ``arrived`` is in microseconds."""


def message_decoder(format: Format, columns: Columns, *, avro_schema: str | Mapping[str, Any] | None) -> MessageDecoder:
    """The decoder of a format."""
    match format:
        case "json":
            return JsonMessages(JsonLines(columns))
        case "csv":
            return CsvMessages(CsvLines(columns, header=False))
        case "raw":
            return RawMessages()
        case "avro":
            if avro_schema is None:
                raise DefinitionError(
                    "AVRO_SCHEMA_MISSING", "format='avro' needs the writer's schema. Give avro_schema='{...}'."
                )
            given = json.loads(avro_schema) if isinstance(avro_schema, str) else avro_schema
            return AvroMessages(columns, json.dumps(given))
        case _:
            raise DefinitionError(
                "FORMAT_UNKNOWN", f"format={format!r} is not known. Use 'json', 'csv', 'raw' or 'avro'."
            )


def as_lines(payloads: Sequence[bytes], positions: Integers) -> Lines:
    """Payloads as a file would hold them, each with its position.

    >>> as_lines([b"{}", b"[1]"], np.array([4, 9])).raw()
    [b'{}', b'[1]']
    """
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    ends = np.cumsum(lengths + 1) - 1
    return Lines(b"\n".join([*payloads, b""]), ends - lengths, ends, positions, together=True)


@dataclass(frozen=True, slots=True)
class JsonMessages:
    """One JSON object a message; white space around and inside it is nothing."""

    lines: JsonLines

    def decode(self, payloads: Payloads) -> Decoded:
        """Rows of the declared columns."""
        lines = payloads.lines
        if lines.data.count(b"\n") != len(lines):
            # Outside of text, where JSON forbids it, a line break means no more than a space.
            lines = lines.with_spaces_for_breaks()
        return _with_dead(self.lines.decode_lines(lines), payloads)


@dataclass(frozen=True, slots=True)
class CsvMessages:
    """One CSV record a message, fields in the order of the declared columns."""

    lines: CsvLines

    def decode(self, payloads: Payloads) -> Decoded:
        """Rows of the declared columns."""
        where = payloads.lines.positions
        records = [payload.rstrip(b"\r\n") for payload in payloads.lines.raw()]
        dead = []
        broken = np.fromiter((b"\n" in record for record in records), np.bool_, len(records))
        if broken.any():
            bad = np.flatnonzero(broken).tolist()
            letters = [(int(where[i]), NOT_CSV, "the record has a line break", records[i][:RAW_BYTES]) for i in bad]
            dead = [pl.DataFrame(letters, schema=DEAD_SCHEMA, orient="row")]
            records = [record for record, out in zip(records, broken.tolist(), strict=True) if not out]
            where = where[~broken]
        return _with_dead(self.lines.decode_lines(as_lines(records, where)), payloads, *dead)


@dataclass(frozen=True, slots=True)
class RawMessages:
    """Payloads as they are, in a column ``value``; a message without one has null."""

    def decode(self, payloads: Payloads) -> Decoded:
        """One row a message."""
        rows = pl.DataFrame({VALUE: pl.Series(payloads.listed(), dtype=pl.Binary), POSITION: payloads.positions})
        return Decoded(rows, pl.DataFrame(schema=DEAD_SCHEMA))


@dataclass(frozen=True, slots=True)
class AvroMessages:
    """One Avro record a message, without a header, written with the given schema."""

    columns: Columns
    schema: str

    def decode(self, payloads: Payloads) -> Decoded:
        """Rows of the declared columns; fastavro reads one record at a time."""
        parsed = fastavro.parse_schema(json.loads(self.schema))
        lines = payloads.lines
        records: list[dict[str, Any]] = []
        where: list[int] = []
        dead: list[tuple[int, str, str, bytes]] = []
        for payload, position in zip(lines.raw(), lines.positions.tolist(), strict=True):
            try:
                record = self._record(payload, parsed)
            except (Exception, pl.exceptions.PanicException) as problem:  # whatever strange bytes lead to
                dead.append((position, NOT_AVRO, str(problem) or type(problem).__name__, payload[:RAW_BYTES]))
            else:
                records.append(record)
                where.append(position)
        rows = pl.DataFrame(records, schema=self.columns.types) if records else self.columns.empty().drop(POSITION)
        rows, problems = settle(rows.with_columns(pl.Series(POSITION, where, dtype=pl.Int64)), self.columns)
        letters = pl.DataFrame(dead, schema=DEAD_SCHEMA, orient="row")
        if not problems.is_empty():
            letters = pl.concat([letters, problems.with_columns(lines.raw_at(problems["position"], RAW_BYTES))])
        return _with_dead(Decoded(rows, letters), payloads)

    def _record(self, payload: bytes, parsed: Any) -> dict[str, Any]:
        """The one record of a payload; any exception when it is none, or not one of the declared columns."""
        stream = BytesIO(payload)
        record: dict[str, Any] = fastavro.schemaless_reader(stream, parsed, None)  # type: ignore[assignment]
        left = len(payload) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes are left over behind the record")
        row = pl.DataFrame([record], schema=self.columns.types, strict=True)
        for column in row:
            # Polars makes null of a decimal that has too many digits.
            if column.null_count() > 0 and record.get(column.name) is not None:
                raise ValueError(mismatch(column.name, column.dtype, str(record[column.name])))
        return record


def _with_dead(decoded: Decoded, payloads: Payloads, *dead: pl.DataFrame) -> Decoded:
    if not (dead or len(payloads.missing)):
        return decoded
    letters = pl.concat([decoded.dead, *dead, payloads.dead]).sort("position")
    return Decoded(decoded.rows, letters, decoded.lines)
