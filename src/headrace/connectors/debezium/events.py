"""Change events out of messages of any form, and the rows of a changelog that they give: one or two each."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence

import polars as pl

from headrace.changelog import CHANGE, DELETE, INSERT, UNCHANGED, UPDATE_AFTER, UPDATE_BEFORE, OnTruncate, sortable
from headrace.changelog import POSITION as PLACE
from headrace.connectors.base.decoding import POSITION, Columns, Decoded
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.lines import as_lines
from headrace.connectors.debezium.message_layout import MessageForm, split_messages
from headrace.errors import HeadraceError

_SOURCE_FIELDS = "connector ts_ms lsn sequence file pos row commit_lsn change_lsn event_serial_no ord"
SOURCE: Mapping[str, pl.DataType] = {name: pl.String() for name in _SOURCE_FIELDS.split()}
"""The fields of a message's ``source`` that give its position and time."""
ORDER = "__order"
"""Sorts the two rows of an update: the one before comes first."""
_UPSERTS, _DELETE, _TRUNCATE, _MESSAGE = ("c", "r", "u"), "d", "t", "m"
_op = pl.col("op")
CONCERNS_NO_ROW = (_op == _MESSAGE).fill_null(False)
"""Whether an event is a message that code in the database has put into the log (pg_logical_emit_message)."""
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


def refused_events(events: pl.DataFrame, on_truncate: OnTruncate) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The events that have rows, and the problems of the others."""
    upsert, delete, truncate = _op.is_in(_UPSERTS), _op == _DELETE, _op == _TRUNCATE
    lacks_row = upsert & pl.col("after").is_null() | delete & pl.col("before").is_null()
    bad_change = lacks_row | ~(upsert | delete).fill_null(False)
    reason = pl.when(truncate).then(pl.lit("TABLE_TRUNCATED")).when(bad_change).then(pl.lit("NOT_A_CHANGE"))
    detail = (
        pl.when(truncate)
        .then(pl.lit("the table was truncated"))
        .when(upsert)
        .then(pl.format("op {} has no row after it", _op))
        .when(delete)
        .then(pl.lit("op d has neither a row before it nor a key"))
        .otherwise(pl.format("op {} is not known", _op.fill_null("null")))
    )
    judged = events.with_columns(reason.alias("reason"))
    bad = judged.filter(pl.col("reason").is_not_null())
    truncated = bad.filter(pl.col("reason") == "TABLE_TRUNCATED")
    if on_truncate == "stop" and not truncated.is_empty():
        raise HeadraceError(
            "TABLE_TRUNCATED",
            f"the table was truncated at {truncated[PLACE][0]}, which no changelog can express. "
            "Empty what was made from the table, then continue with on_truncate='dead_letter'.",
        )
    good = judged.filter(pl.col("reason").is_null()).drop("reason")
    return good, bad.select(pl.col(POSITION).alias("position"), "reason", detail.alias("detail"))


def changelog_rows(events: pl.DataFrame, key: Sequence[str], about: Sequence[str]) -> pl.DataFrame:
    """The rows of events, their values as text; both rows of an update have the columns ``about``."""
    before, after = pl.col("before").struct, pl.col("after").struct
    moved = pl.any_horizontal(before.field(name).ne_missing(after.field(name)) for name in key)
    both = (_op == "u") & pl.col("before").is_not_null()
    judged = events.with_columns((both & moved).alias("moved"))
    new, gone = _op.is_in(("c", "r")) | pl.col("moved"), (_op == _DELETE) | pl.col("moved")
    upserts = judged.filter(_op.is_in(_UPSERTS)).select(
        _kind(new, INSERT, UPDATE_AFTER), pl.lit(1).alias(ORDER), pl.col("after").alias("row"), *about, POSITION
    )
    deletes = judged.filter(both | (_op == _DELETE)).select(
        _kind(gone, DELETE, UPDATE_BEFORE), pl.lit(0).alias(ORDER), pl.col("before").alias("row"), *about, POSITION
    )
    return pl.concat([deletes, upserts]).unnest("row")


def _kind(whole: pl.Expr, one: str, other: str) -> pl.Expr:
    return pl.when(whole).then(pl.lit(one)).otherwise(pl.lit(other)).alias(CHANGE)


def with_unchanged(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Rows with null in place of each placeholder, and the names of these columns in ``unchanged``.

    >>> rows = pl.DataFrame({"id": ["1", "2"], "note": ["short", "__debezium_unavailable_value"]})
    >>> with_unchanged(rows, ["id", "note"]).rows()
    [('1', 'short', []), ('2', None, ['note'])]
    """
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


def change_position(source: pl.Expr, place: pl.Expr) -> pl.Expr:
    """The position of a change as text that sorts: the connector's, or else the message's place in its topic or file.

    PostgreSQL: the end of the transaction before and the change's own LSN, because changes are sent in the order of
    commits. MySQL: number of the binary log, place in it, row. SQL Server: LSNs of commit and change, serial number.
    MongoDB: time of the operation, its order within that time, and the message's place, because all operations of a
    transaction have one time and order.

    >>> frame = pl.DataFrame({"source": [{"lsn": "97", "sequence": '["91","97"]'}, {}], "place": ["1", "2"]},
    ...                      schema={"source": pl.Struct(SOURCE), "place": pl.String()})
    >>> frame.select(change_position(pl.col("source"), pl.col("place")).alias("position"))["position"].to_list()
    ['00000000000000000091:00000000000000000097', '2']
    """
    at = {name: _plain(source.struct.field(name)) for name in SOURCE}
    nothing = pl.lit("0")
    commit = pl.coalesce(at["sequence"].str.extract(r'^\["?(\d+)'), at["lsn"])
    log = at["file"].str.extract(r"(\d+)$")
    changed = pl.coalesce(at["change_lsn"], pl.lit(""))
    return pl.coalesce(
        _joined(sortable(commit), sortable(at["lsn"])),
        _joined(sortable(log), sortable(at["pos"]), sortable(pl.coalesce(at["row"], nothing))),
        _joined(at["commit_lsn"], changed, sortable(pl.coalesce(at["event_serial_no"], nothing))),
        pl.when(at["ord"].is_not_null()).then(_joined(sortable(at["ts_ms"]), sortable(at["ord"]), place)),
        place,
    )


def committed_at(source: pl.Expr, sent: pl.Expr, arrived: pl.Expr) -> pl.Expr:
    """When the database committed the change, in microseconds; else when the connector sent it or Kafka received it."""
    known = _plain(source.struct.field("ts_ms")).cast(pl.Int64, strict=False)
    # Snapshots without a time have zero.
    taken = pl.when(known > 0).then(known)
    return pl.coalesce(taken * 1000, _plain(sent).cast(pl.Int64, strict=False) * 1000, arrived)


def _plain(text: pl.Expr) -> pl.Expr:
    """A field as it was sent, without the mark that it got if a decimal column has its name."""
    return text.str.strip_chars_start(" ")


def _joined(*parts: pl.Expr) -> pl.Expr:
    return pl.concat_str(parts, separator=":")
