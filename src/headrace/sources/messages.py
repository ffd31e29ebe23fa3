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

from headrace.errors import DefinitionError
from headrace.sources.conversion import settle
from headrace.sources.csv_lines import CsvLines
from headrace.sources.decoding import (
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
from headrace.sources.json_lines import JsonLines
from headrace.sources.lines import Integers, Lines

Format = Literal["json", "csv", "raw", "avro"]
Payloads = Sequence[bytes | None]
VALUE = "value"


class MessageDecoder(Protocol):
    """Makes rows of payloads; ``positions`` says which row each one is."""

    def decode(self, payloads: Payloads, positions: Integers) -> Decoded:
        """Good rows and dead ones; together they are all of them."""


@runtime_checkable
class KeyedDecoder(Protocol):
    """Makes rows of payloads together with their keys and times."""

    def decode_keyed(self, payloads: Payloads, positions: Integers, keys: Payloads, arrived: Integers) -> Decoded:
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
    after = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)) + 1)
    starts = np.concatenate(([0], after[:-1])).astype(np.int64)
    return Lines(b"\n".join([*payloads, b""]), starts, after - 1, positions)


@dataclass(frozen=True, slots=True)
class JsonMessages:
    """One JSON object a message; white space around and inside it is nothing."""

    lines: JsonLines

    def decode(self, payloads: Payloads, positions: Integers) -> Decoded:
        """Rows of the declared columns."""
        present, where, dead = _present(payloads, positions)
        lines = as_lines(present, where)
        if lines.data.count(b"\n") != len(present):
            # Outside of text, where JSON forbids it, a line break means no more than a space.
            lines = as_lines([payload.replace(b"\n", b" ") for payload in present], where)
        return _with_dead(self.lines.decode_lines(lines), dead)


@dataclass(frozen=True, slots=True)
class CsvMessages:
    """One CSV record a message, fields in the order of the declared columns."""

    lines: CsvLines

    def decode(self, payloads: Payloads, positions: Integers) -> Decoded:
        """Rows of the declared columns."""
        present, where, dead = _present(payloads, positions)
        records = [payload.rstrip(b"\r\n") for payload in present]
        broken = np.fromiter((b"\n" in record for record in records), np.bool_, len(records))
        if broken.any():
            bad = np.flatnonzero(broken).tolist()
            letters = [(int(where[i]), NOT_CSV, "the record has a line break", records[i][:RAW_BYTES]) for i in bad]
            dead = pl.concat([dead, pl.DataFrame(letters, schema=DEAD_SCHEMA, orient="row")])
            records = [record for record, out in zip(records, broken.tolist(), strict=True) if not out]
            where = where[~broken]
        return _with_dead(self.lines.decode_lines(as_lines(records, where)), dead)


@dataclass(frozen=True, slots=True)
class RawMessages:
    """Payloads as they are, in a column ``value``; a message without one has null."""

    def decode(self, payloads: Payloads, positions: Integers) -> Decoded:
        """One row a message."""
        rows = pl.DataFrame({VALUE: pl.Series(payloads, dtype=pl.Binary), POSITION: positions})
        return Decoded(rows, pl.DataFrame(schema=DEAD_SCHEMA))


@dataclass(frozen=True, slots=True)
class AvroMessages:
    """One Avro record a message, without a header, written with the given schema."""

    columns: Columns
    schema: str

    def decode(self, payloads: Payloads, positions: Integers) -> Decoded:
        """Rows of the declared columns; fastavro reads one record at a time."""
        parsed = fastavro.parse_schema(json.loads(self.schema))
        records: list[dict[str, Any]] = []
        where: list[int] = []
        dead: list[tuple[int, str, str, bytes]] = []
        for payload, position in zip(payloads, positions.tolist(), strict=True):
            if payload is None:
                dead.append((position, NO_VALUE, "the message has no value", b""))
                continue
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
            lines = as_lines([payload or b"" for payload in payloads], positions)
            letters = pl.concat([letters, problems.with_columns(lines.raw_at(problems["position"], RAW_BYTES))])
        return Decoded(rows, letters)

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


def _present(payloads: Payloads, positions: Integers) -> tuple[Sequence[bytes], Integers, pl.DataFrame]:
    """Payloads that are there, and dead letters for messages without one."""
    if None not in payloads:
        return payloads, positions, pl.DataFrame(schema=DEAD_SCHEMA)  # type: ignore[return-value]
    there = np.fromiter((payload is not None for payload in payloads), np.bool_, len(payloads))
    letters = [(position, NO_VALUE, "the message has no value", b"") for position in positions[~there].tolist()]
    present = [payload for payload in payloads if payload is not None]
    return present, positions[there], pl.DataFrame(letters, schema=DEAD_SCHEMA, orient="row")


def _with_dead(decoded: Decoded, dead: pl.DataFrame) -> Decoded:
    return decoded if dead.is_empty() else Decoded(decoded.rows, pl.concat([decoded.dead, dead]), decoded.lines)
