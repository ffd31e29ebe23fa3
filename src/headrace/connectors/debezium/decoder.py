"""Decodes Debezium's messages by the thousand, from topics with keys and times, or from recorded files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from headrace.changelog import sortable
from headrace.connectors.base.decoding import NOT_UTF8, POSITION, RAW_BYTES, TOO_LARGE, Columns, Decoded, unreadable
from headrace.connectors.base.lines import MAX_ROW_BYTES, Integers, read_lines
from headrace.connectors.base.messages import Payloads, as_lines
from headrace.connectors.debezium.changes import ADDED_TYPES, DebeziumChanges
from headrace.connectors.debezium.chunk import Chunk
from headrace.errors import DefinitionError
from headrace.storage import open_binary


@dataclass(frozen=True, slots=True)
class DebeziumMessages:
    """One message gives one or two rows, nothing (a tombstone), or a dead letter."""

    changes: DebeziumChanges
    columns: Columns
    """The table's own."""

    def decode(self, payloads: Payloads, folder: str = "") -> Decoded:
        """Rows of messages of which only the values are known."""
        return self.decode_keyed(payloads, [None] * len(payloads.positions), None, folder)

    def decode_keyed(
        self, payloads: Payloads, keys: Sequence[bytes | None], arrived: Integers | None, folder: str = ""
    ) -> Decoded:
        """Rows of messages with their keys and when they came (microseconds); ``folder`` begins their places."""
        given, positions = payloads.listed(), payloads.positions
        values, unreadable_values = _texts(given, positions)
        messages = pl.DataFrame(
            {
                POSITION: pl.Series(positions, dtype=pl.Int64),
                "value": values,
                "key": _texts(keys, positions)[0],
                "arrived": pl.Series([None] * len(values) if arrived is None else arrived, dtype=pl.Int64),
            }
        ).with_columns(pl.concat_str(pl.lit(folder), sortable(pl.col(POSITION))).alias("place"))
        there = messages.filter(~pl.col(POSITION).is_in(unreadable_values["position"].implode()))
        found = Chunk(self.changes, self.columns).found(there)
        dead = pl.concat([unreadable_values, *found.dead]).unique("position", keep="first").sort("position")
        lines = as_lines([payload or b"" for payload in given], positions)
        return Decoded(found.rows, dead.with_columns(lines.raw_at(dead["position"], RAW_BYTES)), lines, found.skipped)


def debezium_messages(changes: DebeziumChanges, declared: Mapping[str, pl.DataType], format: str) -> DebeziumMessages:
    """The decoder of a source whose messages have the declared columns, those of the changelog among them."""
    if format != "json":
        raise DefinitionError(
            "FORMAT_UNKNOWN", f"format={format!r}: Debezium's messages are read as JSON. Use format='json'."
        )
    table = {name: kind for name, kind in declared.items() if name not in ADDED_TYPES}
    strange = [name for name in changes.key if name not in table]
    if strange:
        raise DefinitionError(
            "COLUMN_UNKNOWN",
            f"debezium_changes: key column {strange[0]!r} is filled by the source and is none of the table's. "
            f"Name the table's primary key out of: {', '.join(table)}.",
        )
    return DebeziumMessages(changes, Columns(table))


@dataclass(frozen=True, slots=True)
class DebeziumFiles:
    """Recorded messages, one value a line."""

    messages: DebeziumMessages

    def decode(self, path: str) -> Iterator[Decoded]:
        """Chunks of rows; where a message does not say its position, that of its line counts, file by file."""
        name = path.rstrip("/").rpartition("/")[2]
        try:
            with open_binary(path) as stream:
                for lines in read_lines(stream, max_row_bytes=MAX_ROW_BYTES):
                    yield self.messages.decode(Payloads(lines, lines.positions[:0]), f"{name}:")
        except (OSError, ValueError) as error:
            yield unreadable(Columns({**self.messages.columns.types, **ADDED_TYPES}), str(error))


def _texts(payloads: Sequence[bytes | None], positions: Integers) -> tuple[pl.Series, pl.DataFrame]:
    """Payloads as text, null where there is none; and the problems of those that are no text or too long."""
    given = pl.Series(payloads, dtype=pl.Binary)
    where = pl.Series("position", positions, dtype=pl.Int64)
    too_long = (given.bin.size() > MAX_ROW_BYTES).fill_null(False)
    problems = [_problems(where.filter(too_long), TOO_LARGE, f"the message is longer than {MAX_ROW_BYTES} bytes")]
    try:
        text = given.cast(pl.String)
    except pl.exceptions.PolarsError:
        replaced = (None if payload is None else payload.decode(errors="replace") for payload in payloads)
        text = pl.Series(list(replaced), dtype=pl.String)
        changed = ~text.cast(pl.Binary).eq_missing(given)
        problems.append(_problems(where.filter(changed), NOT_UTF8, "the message holds bytes that are not UTF-8"))
    return text, pl.concat(problems)


def _problems(positions: pl.Series, reason: str, detail: str) -> pl.DataFrame:
    return positions.to_frame().with_columns(reason=pl.lit(reason), detail=pl.lit(detail))
