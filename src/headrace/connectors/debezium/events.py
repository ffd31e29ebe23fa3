"""Change events out of messages of any form: the operation, the row before and after it, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from headrace.connectors.base.decoding import DEAD_SCHEMA, POSITION, Columns, Decoded
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.messages import as_lines
from headrace.connectors.debezium.changelog_rows import SOURCE
from headrace.connectors.debezium.message_layout import MessageForm, split_messages

TextColumns = Mapping[str, pl.DataType]
"""The wanted columns of a table, every plain value as text."""

MONGODB = "mongodb"
"""The connector whose keys hold JSON as text, under the name ``id``."""
_ABOUT = {"op": pl.String(), "source": pl.Struct(SOURCE), "ts_ms": pl.String()}
_TRANSACTION = pl.Struct({"id": pl.String()})
# Fields that the transform which unwraps rows may add, with or without the prefix ``source``.
_FLAT_SOURCE = {
    name: (f"__source_{name}",) if name == "ts_ms" else (f"__source_{name}", f"__{name}") for name in SOURCE
}
_FLAT_ABOUT = ("__op", "__deleted", "__ts_ms", "__transaction_id")


def read_events(form: MessageForm, pieces: pl.DataFrame, table: TextColumns) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Events (op, before, after, source, sent, transaction) of messages of one form, and dead letters."""
    if form == "flat":
        added = [name for names in _FLAT_SOURCE.values() for name in names]
        decoded = _read_objects(pieces, {**table, **dict.fromkeys((*added, *_FLAT_ABOUT), pl.String())})
        return _flat_events(decoded.rows, table), decoded.dead
    row = pl.Struct(table) if form == "envelope" else pl.String()
    decoded = _read_objects(pieces, {**_ABOUT, "before": row, "after": row, "transaction": _TRANSACTION})
    if form == "documents":
        return _document_events(decoded, table)
    return _envelope_events(decoded.rows), decoded.dead


def _read_objects(pieces: pl.DataFrame, types: Mapping[str, pl.DataType]) -> Decoded:
    """The wanted fields of JSON objects, one in each text of ``payload``."""
    # JSON allows line breaks only between tokens, where a space means the same.
    texts = pieces["payload"].str.replace_all("\n", " ", literal=True).cast(pl.Binary).to_list()
    return JsonLines(Columns(types)).decode_lines(as_lines(texts, pieces[POSITION].to_numpy()))


def _envelope_events(rows: pl.DataFrame) -> pl.DataFrame:
    transaction = pl.col("transaction").struct.field("id")
    postgres = pl.col("source").struct.field("connector") == "postgresql"
    return rows.select(
        "op",
        "before",
        "after",
        "source",
        pl.col("ts_ms").alias("sent"),
        # PostgreSQL's connector appends the LSN of each change, which would make every change a transaction.
        pl.when(postgres).then(transaction.str.extract("^([^:]*)")).otherwise(transaction).alias("transaction"),
        POSITION,
    )


def _flat_events(rows: pl.DataFrame, table: TextColumns) -> pl.DataFrame:
    deleted = (pl.col("__deleted") == "true").fill_null(False) | (pl.col("__op") == "d").fill_null(False)
    row = pl.struct(*table)
    source = [pl.coalesce(*names).alias(name) for name, names in _FLAT_SOURCE.items()]
    return rows.select(
        # A row without an operation is new or updated: an upsert either way.
        pl.when(deleted).then(pl.lit("d")).otherwise(pl.coalesce("__op", pl.lit("u"))).alias("op"),
        pl.when(deleted).then(row).alias("before"),
        pl.when(~deleted).then(row).alias("after"),
        pl.struct(source).alias("source"),
        pl.col("__ts_ms").alias("sent"),
        pl.col("__transaction_id").alias("transaction"),
        POSITION,
    )


def _document_events(decoded: Decoded, table: TextColumns) -> tuple[pl.DataFrame, pl.DataFrame]:
    events, dead = decoded.rows, [decoded.dead]
    for side in ("before", "after"):
        given = events.filter(pl.col(side).is_not_null()).select(POSITION, payload=side)
        documents = _read_objects(given, table)
        dead.append(documents.dead)
        rows = documents.rows.select(POSITION, pl.struct(*table).alias(side))
        events = events.drop(side).join(rows, on=POSITION, how="left", maintain_order="left")
    if not any(each.height for each in dead):
        return _envelope_events(events), pl.DataFrame(schema=DEAD_SCHEMA)
    bad = pl.concat(dead).unique("position", keep="first")
    return _envelope_events(events.filter(~pl.col(POSITION).is_in(bad["position"].implode()))), bad


def with_keys(deletes: pl.DataFrame, key: Sequence[str], table: TextColumns) -> pl.DataFrame:
    """Deletes with ``before`` made of their ``key``, null where that cannot be read, and the key's ``schema``."""
    pieces = deletes.select(POSITION, "connector").hstack(split_messages(deletes["key"]))
    documents = pl.col("connector").eq_missing(pl.lit(MONGODB))
    inside = _read_objects(pieces.filter(documents & pl.col("payload").is_not_null()), {"id": pl.String()}).rows
    named = inside.drop_nulls().select(POSITION, payload=pl.concat_str(pl.lit(f'{{"{key[0]}": '), "id", pl.lit("}")))
    plain = pieces.filter(~documents & pl.col("payload").is_not_null()).select(POSITION, "payload")
    rows = _read_objects(pl.concat([plain, named]).sort(POSITION), {name: table[name] for name in key}).rows
    row = pl.struct(*(name if name in key else pl.lit(None, kind).alias(name) for name, kind in table.items()))
    found = rows.select(POSITION, row.alias("before"))
    known = deletes.drop("before").with_columns(pieces["schema"])
    return known.join(found, on=POSITION, how="left", maintain_order="left")
