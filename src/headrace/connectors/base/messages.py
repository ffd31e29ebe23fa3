"""Messages (of Kafka, MQTT) as rows: payloads in, one decoded chunk out."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, ClassVar, Literal

import fastavro
import numpy as np
import polars as pl
from pyspark.sql.types import StructType

from headrace.connectors.base.conversion import settle
from headrace.connectors.base.csv_lines import CsvLines
from headrace.connectors.base.decoding import (
    DEAD_SCHEMA,
    FAILURES,
    POSITION,
    Columns,
    Decoded,
    Verdict,
    dead_lines,
    decode_apart,
    failure,
    mismatch,
    type_name,
)
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.lines import Integers, Lines, as_lines
from headrace.errors import DefinitionError, check_choice
from headrace.schemas import polars_type

Format = Literal["json", "csv", "raw", "avro"]
KEY, VALUE = "_key", "value"


@dataclass(frozen=True, slots=True)
class Payloads:
    """Messages by position: the payloads as lines, and the positions of messages without a payload.

    >>> Payloads.of([b"{}", None, b"[1]"], np.array([4, 5, 9])).raw()
    [b'{}', None, b'[1]']
    """

    lines: Lines
    """Only spaces and line ends lie between them."""
    missing: Integers
    keys: Sequence[bytes | None] | None = None
    """The key of every message, if asked for."""
    times: Integers | None = None
    """When every message was written, in microseconds, if asked for."""

    @classmethod
    def of(
        cls,
        payloads: Sequence[bytes | None],
        positions: Integers,
        keys: Sequence[bytes | None] | None = None,
        times: Integers | None = None,
    ) -> Payloads:
        there = np.fromiter((payload is not None for payload in payloads), np.bool_, len(payloads))
        present = [payload for payload in payloads if payload is not None]
        return cls(as_lines(present, positions[there]), positions[~there], keys, times)

    @classmethod
    def concat(cls, parts: Sequence[Payloads]) -> Payloads:
        """Parts in the order of their positions, which all have keys and times or all have none.

        >>> first, second = (Payloads.of([b"a", None], np.array([at, at + 1])) for at in (1, 3))
        >>> Payloads.concat([first, second]).raw()
        [b'a', None, b'a', None]
        """
        if not parts:
            return cls.of([], np.empty(0, np.int64), [], np.empty(0, np.int64))
        before = np.cumsum([0, *(len(part.lines.data) for part in parts)])[:-1]
        lines = Lines(
            b"".join(part.lines.data for part in parts),
            np.concatenate([part.lines.starts + place for part, place in zip(parts, before, strict=True)]),
            np.concatenate([part.lines.ends + place for part, place in zip(parts, before, strict=True)]),
            np.concatenate([part.lines.positions for part in parts]),
            together=True,
        )
        keys = [part.keys for part in parts if part.keys is not None]
        times = [part.times for part in parts if part.times is not None]
        return cls(
            lines,
            np.concatenate([part.missing for part in parts]),
            [key for each in keys for key in each] if keys else None,
            np.concatenate(times) if times else None,
        )

    def __len__(self) -> int:
        return len(self.lines) + len(self.missing)

    @property
    def positions(self) -> Integers:
        there = self.lines.positions
        return np.sort(np.concatenate([there, self.missing])) if len(self.missing) else there

    def __getitem__(self, rows: slice) -> Payloads:
        keys = None if self.keys is None else self.keys[rows]
        return Payloads.of(
            self.raw()[rows], self.positions[rows], keys, None if self.times is None else self.times[rows]
        )

    def raw(self) -> list[bytes | None]:
        found: list[bytes | None] = [None] * len(self)
        places = np.searchsorted(self.positions, self.lines.positions).tolist()
        for place, payload in zip(places, self.lines.raw(), strict=True):
            found[place] = payload
        return found


class MessageDecoder(ABC):
    """Turns payloads into good rows and dead rows."""

    __slots__ = ()
    keyed: ClassVar[bool] = False
    """Whether it needs the messages' keys and times."""

    def read(self, payloads: Payloads) -> Iterator[Decoded]:
        """The rows of messages, whatever these are."""
        return decode_apart(self.decode, payloads)

    @abstractmethod
    def decode(self, payloads: Payloads) -> Decoded:
        """The rows of messages, in one piece."""


def message_decoder(format: Format, columns: Columns, *, avro_schema: str | Mapping[str, Any] | None) -> MessageDecoder:
    """The decoder of a format."""
    check_choice(Format, format=format)
    if format == "json":
        return JsonMessages(JsonLines(columns))
    if format == "csv":
        return CsvMessages(CsvLines(columns, header=False))
    if format == "raw":
        return RawMessages()
    if avro_schema is None:
        raise DefinitionError(
            "AVRO_SCHEMA_MISSING", "format='avro' needs the writer's schema. Give avro_schema='{...}'."
        )
    given = json.loads(avro_schema) if isinstance(avro_schema, str) else avro_schema
    return AvroMessages(columns, json.dumps(given))


def check_message_schema(
    topic: str, format: str, schema: StructType | None, metadata: Mapping[str, tuple[pl.DataType, ...]]
) -> None:
    """Fail unless a source's schema fits its format, and its metadata columns have the types that the source fills."""
    if (schema is None) != (format == "raw"):
        wanted = "needs schema='...' with a message's columns" if schema is None else "takes no schema. Leave it out"
        raise DefinitionError("SCHEMA_MISSING", f"topic {topic!r}: format={format!r} {wanted}.")
    for field in () if schema is None else schema.fields:
        allowed = metadata.get(field.name)
        if allowed is not None and (found := polars_type(field.dataType, field.name)) not in allowed:
            names = " or ".join(map(type_name, allowed))
            raise DefinitionError(
                "METADATA_TYPE",
                f"topic {topic!r}: column {field.name!r} has type {names}, but the schema declares "
                f"{type_name(found)}. Correct it.",
            )
        if field.name == KEY and not field.nullable:
            raise DefinitionError(
                "METADATA_TYPE", f"topic {topic!r}: a message may have no key. Declare _key without NOT NULL."
            )
    if schema is not None and all(field.name in metadata for field in schema.fields):
        raise DefinitionError("SCHEMA_MISSING", f"topic {topic!r}: the schema has only metadata columns.")


@dataclass(frozen=True, slots=True)
class JsonMessages(MessageDecoder):
    """One JSON object per message; white space around and inside it does not matter."""

    lines: JsonLines

    def decode(self, payloads: Payloads) -> Decoded:
        lines = payloads.lines
        if lines.data.count(b"\n") != len(lines):
            # JSON allows line breaks only outside of text, where a space means the same.
            lines = lines.with_spaces_for_breaks()
        return _with_missing(self.lines.decode_lines(lines), payloads)


@dataclass(frozen=True, slots=True)
class CsvMessages(MessageDecoder):
    """One CSV record per message, with fields in the order of the declared columns."""

    lines: CsvLines

    def decode(self, payloads: Payloads) -> Decoded:
        records = [payload.rstrip(b"\r\n") for payload in payloads.lines.raw()]
        return _with_missing(self.lines.decode_lines(as_lines(records, payloads.lines.positions)), payloads)


@dataclass(frozen=True, slots=True)
class RawMessages(MessageDecoder):
    """Payloads as they are, in a column ``value``; null for a message without one."""

    def decode(self, payloads: Payloads) -> Decoded:
        values = pl.Series(payloads.raw(), dtype=pl.Binary)
        return Decoded(pl.DataFrame({VALUE: values, POSITION: payloads.positions}))


@dataclass(frozen=True, slots=True)
class AvroMessages(MessageDecoder):
    """One Avro record per message, without a header, written with the given schema."""

    columns: Columns
    schema: str

    def decode(self, payloads: Payloads) -> Decoded:
        parsed = fastavro.parse_schema(json.loads(self.schema))
        lines = payloads.lines
        records: list[dict[str, Any]] = []
        verdicts: dict[int, Verdict] = {}
        for index, payload in enumerate(lines.raw()):
            try:
                # fastavro reads one record at a time.
                records.append(self._record(payload, parsed))
            except FAILURES as problem:
                verdicts[index] = ("NOT_AVRO", failure(problem))
        where = pl.Series(POSITION, np.delete(lines.positions, list(verdicts)))
        rows, problems = settle(pl.DataFrame([*pl.DataFrame(records, schema=self.columns.types), where]), self.columns)
        return _with_missing(Decoded(rows, dead_lines(lines, verdicts, problems)), payloads)

    def _record(self, payload: bytes, parsed: Any) -> dict[str, Any]:
        """The record of a payload; an exception if it is not one, or does not fit the declared columns."""
        stream = BytesIO(payload)
        record: dict[str, Any] = fastavro.schemaless_reader(stream, parsed, None)  # type: ignore[assignment]
        left = len(payload) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes are left over after the record")
        row = pl.DataFrame([record], schema=self.columns.types, strict=True)
        for column in row:
            # Polars makes null of a decimal that has too many digits.
            if column.null_count() > 0 and record.get(column.name) is not None:
                raise ValueError(mismatch(column.name, column.dtype, str(record[column.name])))
        return record


def _with_missing(decoded: Decoded, payloads: Payloads) -> Decoded:
    """The chunk with the messages without a payload as dead rows."""
    if len(payloads.missing) == 0:
        return decoded
    letter = {"position": payloads.missing, "reason": "NO_VALUE", "detail": "the message has no value", "raw": b""}
    dead = pl.concat([decoded.dead, pl.DataFrame(letter, schema=DEAD_SCHEMA)]).sort("position")
    return replace(decoded, dead=dead)
