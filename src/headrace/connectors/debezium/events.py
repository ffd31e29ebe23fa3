"""Change events out of messages of any form, and the rows of a changelog that they give: one or two each."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial

import polars as pl

from headrace.changelog import (
    CHANGE,
    COMMITTED_AT,
    DELETE,
    INSERT,
    TRANSACTION,
    UNCHANGED,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    OnTruncate,
    sortable,
)
from headrace.changelog import POSITION as PLACE
from headrace.connectors.base.decoding import POSITION, PROBLEM_SCHEMA, Columns, Decoded
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.lines import as_lines
from headrace.connectors.debezium.changes import DebeziumChanges
from headrace.connectors.debezium.message_layout import MessageForm, split_messages
from headrace.errors import HeadraceError
from headrace.rendering import json_rows
from headrace.schemas import MOMENT

_SOURCE_FIELDS = "connector ts_ms lsn sequence file pos row commit_lsn change_lsn event_serial_no ord"
_SOURCE: Mapping[str, pl.DataType] = {name: pl.String() for name in _SOURCE_FIELDS.split()}
"""The fields of a message's ``source`` that give its position and time."""
ORDER = "__order"
"""Sorts the two rows of an update: the one before comes first."""
_UPSERTS, _DELETE, _TRUNCATE, _MESSAGE = ("c", "r", "u"), "d", "t", "m"
_op = pl.col("op")
_PLACEHOLDER = "__debezium_unavailable_value"
# As text, as bytes, as the text of a map, and as an array of numbers; arrays are joined to one text.
_UNAVAILABLE = (
    _PLACEHOLDER,
    b64encode(_PLACEHOLDER.encode()).decode(),
    f'{{"{_PLACEHOLDER}":"{_PLACEHOLDER}"}}',
    ",".join(str(code) for code in _PLACEHOLDER.encode()),
)
TextColumns = Mapping[str, pl.DataType]
"""The wanted columns of a table, every plain value as text."""

MONGODB = "mongodb"
"""The connector whose keys hold JSON as text, under the name ``id``."""
_ABOUT = {"op": pl.String(), "source": pl.Struct(_SOURCE), "ts_ms": pl.String()}
_TRANSACTION = pl.Struct({"id": pl.String()})
# Fields that the transform which unwraps rows may add, with or without the prefix ``source``.
_FLAT_SOURCE = {
    name: (f"__source_{name}",) if name == "ts_ms" else (f"__source_{name}", f"__{name}") for name in _SOURCE
}
_FLAT_ABOUT = ("__op", "__deleted", "__ts_ms", "__transaction_id")


def read_events(
    form: MessageForm, messages: pl.DataFrame, table: TextColumns, *, by_place: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Events of messages of one form, ordered by their places or as the connector says, and the problems of others."""
    events, dead = _read_any(form, messages, table)
    source, place = pl.col("source"), pl.col("place")
    # A message that code in the database has put into the log (pg_logical_emit_message) concerns no row.
    changes = events.filter((_op != _MESSAGE).fill_null(True))
    about = messages.select(POSITION, "key", "arrived", "place")
    placed = changes.join(about, on=POSITION, how="left", maintain_order="left").select(
        "op",
        "before",
        "after",
        "key",
        source.struct.field("connector").alias("connector"),
        (place if by_place else _change_position(source, place)).alias(PLACE),
        _committed_at(source, pl.col("sent"), pl.col("arrived")).cast(MOMENT).alias(COMMITTED_AT),
        TRANSACTION,
        POSITION,
    )
    return placed, dead.select(*PROBLEM_SCHEMA)


def _read_any(form: MessageForm, pieces: pl.DataFrame, table: TextColumns) -> tuple[pl.DataFrame, pl.DataFrame]:
    if form == "flat":
        added = [name for names in _FLAT_SOURCE.values() for name in names]
        decoded = read_objects(pieces, {**table, **dict.fromkeys((*added, *_FLAT_ABOUT), pl.String())})
        return _flat_events(decoded.rows, table), decoded.dead
    row = pl.Struct(table) if form == "envelope" else pl.String()
    decoded = read_objects(pieces, {**_ABOUT, "before": row, "after": row, "transaction": _TRANSACTION})
    if form == "documents":
        return _document_events(decoded, table)
    return _envelope_events(decoded.rows), decoded.dead


def read_objects(pieces: pl.DataFrame, types: Mapping[str, pl.DataType], *, exact: bool = False) -> Decoded:
    """The wanted fields of JSON objects, one in each text of ``payload``; ``exact`` keeps the text of inner objects."""
    # JSON allows line breaks only between tokens, where a space means the same.
    texts = pieces["payload"].str.replace_all("\n", " ", literal=True).cast(pl.Binary).to_list()
    return JsonLines(Columns(types), keeps_numbers=exact).decode_lines(as_lines(texts, pieces[POSITION].to_numpy()))


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
        documents = read_objects(given, table)
        dead.append(documents.dead)
        rows = documents.rows.select(POSITION, pl.struct(*table).alias(side))
        events = events.drop(side).join(rows, on=POSITION, how="left", maintain_order="left")
    bad = pl.concat(dead).unique("position", keep="first")
    return _envelope_events(events.filter(~pl.col(POSITION).is_in(bad["position"].implode()))), bad


def named_keys(keys: pl.Series, name: str) -> pl.Series:
    """Keys as objects; one that is the text of a key column gets the column's name.

    >>> named_keys(pl.Series(["7", '{"id": 8}', None]), "id").to_list()
    ['{"id":"7"}', '{"id": 8}', None]
    """
    is_object = keys.str.contains(rf"^\s*\{{\s*\"(?:schema|payload|{pl.escape_regex(name)})\"\s*:")
    named = pl.Series(json_rows(keys.alias(name).to_frame()), dtype=pl.Binary).cast(pl.String)
    return named.set(is_object | keys.is_null(), None).fill_null(keys).alias(keys.name)


def with_keys(deletes: pl.DataFrame, key: Sequence[str], table: TextColumns) -> pl.DataFrame:
    """Deletes with ``before`` made of their ``key``, null where that cannot be read, and the key's ``schema``."""
    pieces = deletes.select(POSITION, "connector").hstack(split_messages(deletes["key"]))
    documents = pl.col("connector").eq_missing(pl.lit(MONGODB))
    inside = read_objects(pieces.filter(documents & pl.col("payload").is_not_null()), {"id": pl.String()}).rows
    named = inside.drop_nulls().select(POSITION, payload=pl.concat_str(pl.lit(f'{{"{key[0]}": '), "id", pl.lit("}")))
    plain = pieces.filter(~documents & pl.col("payload").is_not_null()).select(POSITION, "payload")
    rows = read_objects(pl.concat([plain, named]).sort(POSITION), {name: table[name] for name in key}).rows
    row = pl.struct(*(name if name in key else pl.lit(None, kind).alias(name) for name, kind in table.items()))
    found = rows.select(POSITION, row.alias("before"))
    known = deletes.drop("before").with_columns(pieces["schema"])
    return known.join(found, on=POSITION, how="left", maintain_order="left")


def _refused(events: pl.DataFrame, on_truncate: OnTruncate) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The events that have rows, and the problems of the others."""
    upsert, delete, truncate = _op.is_in(_UPSERTS), _op == _DELETE, _op == _TRUNCATE
    detail = (
        pl.when(truncate)
        .then(pl.lit("the table was truncated"))
        .when(upsert & pl.col("after").is_null())
        .then(pl.format("op {} has no row after it", _op))
        .when(delete & pl.col("before").is_null())
        .then(pl.lit("op d has neither a row before it nor a key"))
        .when(~(upsert | delete).fill_null(False))
        .then(pl.format("op {} is not known", _op.fill_null("null")))
    )
    judged = events.with_columns(detail=detail)
    truncated = judged.filter(truncate)
    if on_truncate == "stop" and not truncated.is_empty():
        raise HeadraceError(
            "TABLE_TRUNCATED",
            f"the table was truncated at {truncated[PLACE][0]}, which no changelog can express. "
            "Clear what was built from the table, then continue with on_truncate='dead_letter'.",
        )
    reason = pl.when(truncate).then(pl.lit("TABLE_TRUNCATED")).otherwise(pl.lit("NOT_A_CHANGE"))
    bad = judged.drop_nulls("detail").select(pl.col(POSITION).alias("position"), reason.alias("reason"), "detail")
    return judged.filter(pl.col("detail").is_null()).drop("detail"), bad


def changelog_rows(
    events: pl.DataFrame, changes: DebeziumChanges, columns: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of events, their values as text, and the problems of events without rows."""
    events, bad = _refused(events, changes.on_truncate)
    about = (PLACE, COMMITTED_AT, TRANSACTION, POSITION)
    before, after = pl.col("before").struct, pl.col("after").struct
    differs = pl.any_horizontal(before.field(name).ne_missing(after.field(name)) for name in changes.key)
    both = (_op == "u") & pl.col("before").is_not_null()
    judged, moved = events.with_columns(moved=both & differs), pl.col("moved")
    removing = pl.when((_op == _DELETE) | moved).then(pl.lit(DELETE)).otherwise(pl.lit(UPDATE_BEFORE)).alias(CHANGE)
    setting = pl.when(_op.is_in(("c", "r")) | moved).then(pl.lit(INSERT)).otherwise(pl.lit(UPDATE_AFTER)).alias(CHANGE)
    gone = judged.filter(both | (_op == _DELETE)).select(removing, pl.lit(0).alias(ORDER), *about, row="before")
    new = judged.filter(_op.is_in(_UPSERTS)).select(setting, pl.lit(1).alias(ORDER), *about, row="after")
    return _with_unchanged(pl.concat([gone, new]).unnest("row"), columns), bad


def _with_unchanged(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Rows with null in place of each placeholder, and the names of these columns in ``unchanged``."""
    names: list[pl.Expr] = []
    for name in columns:
        kind = rows.schema[name]
        if kind not in (pl.String, pl.List(pl.String)):
            continue
        text = pl.col(name) if kind == pl.String else pl.col(name).list.join(",")
        held = rows.select(text.is_in(_UNAVAILABLE)).to_series()
        if held.any():
            rows = rows.with_columns(pl.when(~held).then(pl.col(name)).alias(name))
            names.append(pl.when(held).then(pl.lit(name)))
    named = pl.concat_list(names).list.drop_nulls() if names else pl.lit([], pl.List(pl.String))
    return rows.with_columns(named.alias(UNCHANGED))


def _change_position(source: pl.Expr, place: pl.Expr) -> pl.Expr:
    """The position of a change as text that sorts: the connector's, or else the message's place in its topic or file.

    PostgreSQL: the end of the transaction before and the change's own LSN, because changes are sent in the order of
    commits. MySQL: number of the binary log, place in it, row. SQL Server: LSNs of commit and change, serial number.
    MongoDB: time of the operation, its order within that time, and the message's place, because all operations of a
    transaction have one time and order.
    """
    at = {name: _plain(source.struct.field(name)) for name in _SOURCE}
    joined, nothing = partial(pl.concat_str, separator=":"), pl.lit("0")
    commit = pl.coalesce(at["sequence"].str.extract(r'^\["?(\d+)'), at["lsn"])
    log = at["file"].str.extract(r"(\d+)$")
    changed = pl.coalesce(at["change_lsn"], pl.lit(""))
    return pl.coalesce(
        joined(sortable(commit), sortable(at["lsn"])),
        joined(sortable(log), sortable(at["pos"]), sortable(pl.coalesce(at["row"], nothing))),
        joined(at["commit_lsn"], changed, sortable(pl.coalesce(at["event_serial_no"], nothing))),
        pl.when(at["ord"].is_not_null()).then(joined(sortable(at["ts_ms"]), sortable(at["ord"]), place)),
        place,
    )


def _committed_at(source: pl.Expr, sent: pl.Expr, arrived: pl.Expr) -> pl.Expr:
    """When the database committed the change, in microseconds; else when the connector sent it or Kafka received it."""
    known = _plain(source.struct.field("ts_ms")).cast(pl.Int64, strict=False)
    # Snapshots without a time have zero.
    taken = pl.when(known > 0).then(known)
    return pl.coalesce(taken * 1000, _plain(sent).cast(pl.Int64, strict=False) * 1000, arrived)


def _plain(text: pl.Expr) -> pl.Expr:
    """A field as it was sent, without the mark that it got if a decimal column has its name."""
    return text.str.strip_chars_start(" ")
