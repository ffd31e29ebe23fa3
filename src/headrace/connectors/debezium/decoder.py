"""Decodes messages about a table, thousands at a time, from topics with keys and times or from recorded files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, ClassVar

import polars as pl

from headrace.changelog import DATABASE_CHANGELOG, sortable
from headrace.changelog import POSITION as PLACE
from headrace.connectors.base.conversion import from_bytes, settle
from headrace.connectors.base.decoding import POSITION, RAW_BYTES, Columns, Decoded, Decoder, with_plain_types
from headrace.connectors.base.lines import MAX_ROW_BYTES, Integers, as_lines, read_lines
from headrace.connectors.base.messages import MessageDecoder, Payloads
from headrace.connectors.debezium.changes import DebeziumChanges
from headrace.connectors.debezium.events import (
    MONGODB,
    ORDER,
    TextColumns,
    changelog_rows,
    named_keys,
    read_events,
    with_keys,
)
from headrace.connectors.debezium.message_layout import MessageForm, message_layout, seen_form, split_messages
from headrace.connectors.debezium.row_messages import read_row_messages
from headrace.connectors.debezium.values import ValueEncodings, mark_plain_decimals
from headrace.errors import DefinitionError

_TOMBSTONE = '{"before":null,"after":null,"source":{"connector":null},"op":"d"}'
"""The envelope that says what a tombstone does."""
Part = tuple[str | None, MessageForm, pl.DataFrame]
"""Messages or events that are read together: of one schema part and one form."""


@dataclass(frozen=True, slots=True)
class DebeziumMessages(MessageDecoder):
    """One message gives one or two rows, nothing (a tombstone), or a dead letter."""

    keyed: ClassVar[bool] = True
    changes: DebeziumChanges
    columns: Columns
    """The table's own columns."""
    folder: str = ""
    """Begins the positions of messages."""

    def decode(self, payloads: Payloads) -> Decoded:
        """Rows of messages; keys and times may be unknown."""
        given, positions = payloads.raw(), payloads.positions
        keys = [None] * len(payloads) if payloads.keys is None else payloads.keys
        times = [None] * len(payloads) if payloads.times is None else payloads.times
        values, broken = _texts(given, positions)
        messages = pl.DataFrame(
            {
                POSITION: pl.Series(positions, dtype=pl.Int64),
                "value": values,
                "key": _texts(keys, positions)[0],
                "arrived": pl.Series(times, dtype=pl.Int64),
            }
        ).with_columns(pl.concat_str(pl.lit(self.folder), sortable(pl.col(POSITION))).alias("place"))
        readable = messages.filter(~pl.col(POSITION).is_in(broken["position"].implode()))
        rows, problems = self._changelog(readable)
        dead = pl.concat([broken, *problems]).unique("position", keep="first").sort("position")
        lines = as_lines([payload or b"" for payload in given], positions)
        skipped = messages.height - rows[POSITION].n_unique() - dead.height
        return Decoded(rows, dead.with_columns(lines.raw_at(dead["position"], RAW_BYTES)), lines, skipped)

    def _changelog(self, messages: pl.DataFrame) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """The rows of messages, and the problems of those without rows; the others are skipped."""
        if self.changes.envelope == "debezium":
            pieces = messages.hstack(split_messages(messages["value"]))
        else:
            pieces = messages.with_columns(pl.lit(None, pl.String).alias("schema"), payload="value")
        pieces = pieces.with_columns(mark_plain_decimals(pieces["payload"], self.columns.types))
        empty = pieces["payload"].is_null() | (pieces["payload"] == "null")
        if self.changes.tombstones == "delete":
            pieces = pieces.with_columns(pl.when(~empty).then(pl.col("schema", "payload")))
            pieces = pieces.with_columns(pl.col("payload").fill_null(_TOMBSTONE))
        else:
            pieces = pieces.filter(~empty)
        parts: list[Part] = []
        key_only: list[pl.DataFrame] = []
        dead: list[pl.DataFrame] = []
        has_key_only = (pl.col("op") == "d") & pl.col("before").is_null() & pl.col("key").is_not_null()
        for schema, form, given in self._parts(pieces):
            events, bad = self._events(form, given)
            key_only.append(events.filter(has_key_only))
            parts.append((schema, form, events.filter(~has_key_only.fill_null(False))))
            dead.append(bad)
        types = {**self.columns.types, **DATABASE_CHANGELOG, POSITION: pl.Int64(), ORDER: pl.Int32()}
        rows = [pl.DataFrame(schema=types)]
        for part in [*parts, *self._key_deletes(key_only)]:
            good, bad = self._rows(*part)
            rows.append(good)
            dead.append(bad)
        return pl.concat(rows).sort(POSITION, PLACE, ORDER, maintain_order=True).drop(ORDER), dead

    def _parts(self, pieces: pl.DataFrame) -> Iterator[Part]:
        """Messages by the form that they have; who writes them says it, unless that is Debezium."""
        envelope = self.changes.envelope
        if envelope == "upsert":
            is_tombstone = pieces["payload"] == _TOMBSTONE
            yield None, "envelope", pieces.filter(is_tombstone)
            yield None, "flat", pieces.filter(~is_tombstone)
            return
        if envelope != "debezium":
            yield None, envelope, pieces
            return
        for (schema,), part in pieces.partition_by("schema", as_dict=True, maintain_order=True).items():
            known, _ = message_layout(schema)
            formed = part.with_columns(form=seen_form(part["payload"]) if known is None else pl.lit(known))
            for (form,), same in formed.partition_by("form", as_dict=True, maintain_order=True).items():
                yield schema, form, same

    def _events(self, form: MessageForm, given: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        if form in ("canal", "maxwell"):
            return read_row_messages(form, given, self._text_columns, self.changes.table)
        # A tombstone knows only its place in the topic, so the messages around it must be ordered by theirs too.
        return read_events(form, given, self._text_columns, by_place=self.changes.tombstones == "delete")

    @property
    def _text_columns(self) -> TextColumns:
        return {name: with_plain_types(kind, lambda _: pl.String()) for name, kind in self.columns.types.items()}

    def _key_deletes(self, key_only: Sequence[pl.DataFrame]) -> Iterator[Part]:
        """Deletes of which only the message's key is known, with rows made of the keys."""
        deletes = pl.concat(key_only) if key_only else pl.DataFrame()
        if deletes.is_empty():
            return
        keys = mark_plain_decimals(deletes["key"], self.columns.types)
        if self.changes.envelope == "upsert" and len(self.changes.key) == 1:
            keys = named_keys(keys, self.changes.key[0])
        found = with_keys(deletes.with_columns(keys), self.changes.key, self._text_columns)
        for (schema, connector), part in found.partition_by("schema", "connector", as_dict=True).items():
            yield schema, "documents" if connector == MONGODB else "flat", part.drop("schema")

    def _rows(self, schema: str | None, form: MessageForm, events: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        encodings = ValueEncodings(self.changes.decimals, self.changes.times, message_layout(schema)[1])
        if form == "documents":
            encodings = ValueEncodings("text", "milliseconds", extended=True)
        rows, bad = changelog_rows(events, self.changes, self.columns.names)
        required = Columns(self.columns.types, frozenset(self.changes.key))
        settled, problems = settle(rows.select(*self.columns.names, POSITION), required, encodings.read)
        kept = rows.filter(~pl.col(POSITION).is_in(problems["position"].implode()))
        whole = settled.drop(POSITION).hstack(kept.select(*DATABASE_CHANGELOG, POSITION, ORDER))
        return whole, pl.concat([bad, problems])


def debezium_messages(changes: DebeziumChanges, declared: Mapping[str, pl.DataType], format: str) -> DebeziumMessages:
    """The decoder of a source with the declared columns, which include those of the changelog."""
    if format != "json":
        raise DefinitionError(
            "FORMAT_UNKNOWN", f"format={format!r}: the messages of {changes.label} are read as JSON. Use format='json'."
        )
    table = {name: kind for name, kind in declared.items() if name not in DATABASE_CHANGELOG}
    unknown = [name for name in changes.key if name not in table]
    if unknown:
        raise DefinitionError(
            "COLUMN_UNKNOWN",
            f"{changes.label}: key column {unknown[0]!r} is filled by the source and is not a column of the table. "
            f"Name the table's primary key out of: {', '.join(table)}.",
        )
    return DebeziumMessages(changes, Columns(table))


@dataclass(frozen=True, slots=True)
class DebeziumFiles(Decoder):
    """Recorded messages, one value a line; one without a position of its own gets that of its line and file."""

    messages: DebeziumMessages

    def chunks(self, stream: BinaryIO, name: str) -> Iterator[Decoded]:
        messages = replace(self.messages, folder=f"{name}:")
        for lines in read_lines(stream, max_row_bytes=MAX_ROW_BYTES):
            yield from messages.read(Payloads(lines, lines.positions[:0]))


def _texts(payloads: Sequence[bytes | None], positions: Integers) -> tuple[pl.Series, pl.DataFrame]:
    """Payloads as text, null where there is none; and the problems of those that are not UTF-8 or too long."""
    given = pl.Series(payloads, dtype=pl.Binary)
    where = pl.Series("position", positions, dtype=pl.Int64)
    too_long = (given.bin.size() > MAX_ROW_BYTES).fill_null(False)
    text = from_bytes(given)
    broken = text.is_null() & given.is_not_null()
    large = {"reason": pl.lit("TOO_LARGE"), "detail": pl.lit(f"the message is longer than {MAX_ROW_BYTES} bytes")}
    strange = {"reason": pl.lit("NOT_UTF8"), "detail": pl.lit("the message holds bytes that are not UTF-8")}
    problems = ((too_long, large), (broken, strange))
    return text, pl.concat(where.filter(rows).to_frame().with_columns(**verdict) for rows, verdict in problems)
