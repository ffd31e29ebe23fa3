"""From the texts of messages to the rows of a changelog, those of one form and one schema together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from headrace.changelog import POSITION as PLACE
from headrace.connectors.base.conversion import PROBLEM_SCHEMA, settle
from headrace.connectors.base.decoding import POSITION, Columns
from headrace.connectors.debezium.changelog_rows import (
    ORDER,
    SOURCE,
    change_position,
    changelog_rows,
    committed,
    refused,
    says_nothing,
    with_unchanged,
)
from headrace.connectors.debezium.changes import ADDED_TYPES, COMMITTED_AT, TRANSACTION, DebeziumChanges
from headrace.connectors.debezium.encodings import Encodings
from headrace.connectors.debezium.events import DOCUMENTS, Table, as_text, keyed, read_events
from headrace.connectors.debezium.message_layout import Form, layout, seen_form, split
from headrace.connectors.debezium.plain_decimals import with_plain_decimals
from headrace.schemas import MOMENT


@dataclass(frozen=True, slots=True)
class Found:
    """What a chunk of messages held."""

    rows: pl.DataFrame
    dead: list[pl.DataFrame]
    skipped: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages that are decoded together."""

    changes: DebeziumChanges
    columns: Columns

    def found(self, messages: pl.DataFrame) -> Found:
        """The rows of messages (position, value, key, arrived, place), and the problems of those that give none."""
        pieces = messages.hstack(split(messages["value"]))
        pieces = pieces.with_columns(with_plain_decimals(pieces["payload"], self.columns.types))
        empty = pieces["payload"].is_null() | (pieces["payload"] == "null")
        tombstones = pieces.filter(empty)
        dead: list[pl.DataFrame] = []
        rows: list[pl.DataFrame] = []
        bare = [self._deletes(tombstones)] if self.changes.tombstones == "delete" else []
        skipped = 0 if bare else tombstones.height
        for schema, form, part in _forms(pieces.filter(~empty)):
            events, bad = read_events(form, part, self._table)
            skipped += events.filter(says_nothing()).height
            told = self._placed(events.filter(~says_nothing()), part)
            only_key = (pl.col("op") == "d") & pl.col("before").is_null() & pl.col("key").is_not_null()
            bare.append(told.filter(only_key))
            kept, problems = self._rows(told.filter(~only_key.fill_null(False)), self._encodings(schema, form))
            rows.append(kept)
            dead += [bad.select(*PROBLEM_SCHEMA), problems]
        for schema, form, part in self._keyed(bare):
            kept, problems = self._rows(part, self._encodings(schema, form))
            rows.append(kept)
            dead.append(problems)
        everything = pl.concat([self._empty(), *rows]).sort(POSITION, ORDER, maintain_order=True)
        return Found(everything.drop(ORDER), dead, skipped)

    @property
    def _table(self) -> Table:
        return {name: as_text(kind) for name, kind in self.columns.types.items()}

    def _empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema={**self.columns.types, **ADDED_TYPES, POSITION: pl.Int64(), ORDER: pl.Int32()})

    def _encodings(self, schema: str | None, form: Form) -> Encodings:
        if form == "documents":
            return Encodings("text", "milliseconds", extended=True)
        return Encodings(self.changes.decimals, self.changes.times, layout(schema).named)

    def _deletes(self, tombstones: pl.DataFrame) -> pl.DataFrame:
        row = pl.Struct(self._table)
        nothing = {
            "before": row,
            "after": row,
            "source": pl.Struct(SOURCE),
            "sent": pl.String(),
            TRANSACTION: pl.String(),
        }
        events = tombstones.select(
            POSITION, pl.lit("d").alias("op"), *(pl.lit(None, kind).alias(name) for name, kind in nothing.items())
        )
        return self._placed(events, tombstones)

    def _placed(self, events: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
        """Events with position, time and key."""
        whole = events.join(
            messages.select(POSITION, "key", "arrived", "place"), on=POSITION, how="left", maintain_order="left"
        )
        source, place = pl.col("source"), pl.col("place")
        # A tombstone has no other place than this one, so its neighbours must not have one either.
        position = place if self.changes.tombstones == "delete" else change_position(source, place)
        return whole.select(
            "op",
            "before",
            "after",
            "key",
            source.struct.field("connector").alias("connector"),
            position.alias(PLACE),
            committed(source, pl.col("sent"), pl.col("arrived")).cast(MOMENT).alias(COMMITTED_AT),
            TRANSACTION,
            POSITION,
        )

    def _keyed(self, bare: Sequence[pl.DataFrame]) -> Iterator[tuple[str | None, Form, pl.DataFrame]]:
        deletes = pl.concat(bare) if bare else pl.DataFrame()
        if deletes.is_empty():
            return
        keys = with_plain_decimals(deletes["key"], self.columns.types)
        found = keyed(deletes.with_columns(keys), self.changes.key, self._table)
        for (schema, connector), part in found.partition_by("schema", "connector", as_dict=True).items():
            yield schema, "documents" if connector == DOCUMENTS else "flat", part.drop("schema")

    def _rows(self, events: pl.DataFrame, encodings: Encodings) -> tuple[pl.DataFrame, pl.DataFrame]:
        good, bad = refused(events, self.changes.on_truncate)
        rows = changelog_rows(good, self.changes.key, (PLACE, COMMITTED_AT, TRANSACTION))
        rows = with_unchanged(rows, self.columns.names)
        required = Columns(self.columns.types, frozenset(self.changes.key))
        settled, problems = settle(rows.select(*self.columns.names, POSITION), required, encodings.read)
        kept = rows.filter(~pl.col(POSITION).is_in(problems["position"].implode()))
        whole = settled.drop(POSITION).hstack(kept.select(*ADDED_TYPES, POSITION, ORDER))
        return whole, pl.concat([bad, problems])


def _forms(pieces: pl.DataFrame) -> Iterator[tuple[str | None, Form, pl.DataFrame]]:
    """Messages that can be read together: of one schema part and one form."""
    for (schema,), part in pieces.partition_by("schema", as_dict=True, maintain_order=True).items():
        form = layout(schema).form
        if form is not None:
            yield schema, form, part
            continue
        seen = part.with_columns(seen_form(part["payload"]).alias("form"))
        for (each,), same in seen.partition_by("form", as_dict=True, maintain_order=True).items():
            yield schema, each, same
