"""Canal's and Maxwell's messages as change events: rows as they are now, and the old values of what has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl

from headrace.changelog import COMMITTED_AT, TRANSACTION, sortable
from headrace.changelog import POSITION as PLACE
from headrace.connectors.base.decoding import POSITION, PROBLEM_SCHEMA
from headrace.connectors.debezium.events import TextColumns, read_objects
from headrace.schemas import MOMENT

_NULL = "\ue000null"
"""Stands for a null that is written in ``old``: what is not written there has not changed."""
_WRITTEN_NULL = r'([^\\]"\s*:\s*)null\b'
_OPERATIONS = {
    "insert": "c",
    "bootstrap-insert": "r",
    "update": "u",
    "delete": "d",
    "truncate": "t",
    # Of tables and databases, not of rows; Maxwell's begin with these words.
    **dict.fromkeys(["create", "alter", "erase", "rename", "cindex", "dindex", "query", "bootstrap-start"], "m"),
    **dict.fromkeys(["bootstrap-complete", "table-create", "table-alter", "table-drop", "database-create"], "m"),
    **dict.fromkeys(["database-alter", "database-drop"], "m"),
}
"""Debezium's letters for the types of messages; ``m`` concerns no row."""
_ABOUT = ("database", "table", "type", "isDdl", "es", "ts", "gtid", "xid", "data", "old")
_ROW = "__row"


def read_row_messages(
    form: Literal["canal", "maxwell"], messages: pl.DataFrame, columns: TextColumns, table: str | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Events of messages in the order of their places, and the problems of those that are none."""
    read = read_objects(messages, dict.fromkeys(_ABOUT, pl.String()), exact=True)
    events = read.rows if table is None else read.rows.filter(pl.format("{}.{}", "database", "table") == table)
    kind = pl.col("type").str.to_lowercase()
    ddl = (pl.col("isDdl") == "true").fill_null(False) & (kind != "truncate").fill_null(True)
    op = pl.when(ddl).then(pl.lit("m")).otherwise(kind.replace(_OPERATIONS).fill_null("null"))
    events = events.with_columns(op=op).filter(pl.col("op") != "m")
    rows, dead = _read_rows(form, events, columns)
    about = messages.select(POSITION, "arrived", "place")
    placed = rows.join(about, on=POSITION, how="left", maintain_order="left")
    # Several rows of one statement stand in one message.
    place = pl.concat_str("place", pl.lit(":"), sortable(pl.col(_ROW))) if form == "canal" else pl.col("place")
    unit = {"canal": 1_000, "maxwell": 1_000_000}[form]
    sent = pl.coalesce(pl.col(name).cast(pl.Int64, strict=False) for name in ("es", "ts")) * unit
    transaction = pl.coalesce("gtid", "xid")
    return placed.select(
        "op",
        "before",
        "after",
        pl.lit(None, pl.String).alias("key"),
        pl.lit(None, pl.String).alias("connector"),
        place.alias(PLACE),
        pl.coalesce(sent, "arrived").cast(MOMENT).alias(COMMITTED_AT),
        pl.when(transaction != "").then(transaction).alias(TRANSACTION),
        POSITION,
    ), pl.concat([read.dead.select(*PROBLEM_SCHEMA), dead])


def _read_rows(form: str, events: pl.DataFrame, columns: TextColumns) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Events with the rows before and after them, one each, and the problems of those whose rows cannot be read."""
    row = pl.Struct(dict(columns))
    sides: Mapping[str, pl.DataType] = dict.fromkeys(("data", "old"), row if form == "maxwell" else pl.List(row))
    old = pl.col("old").str.replace_all(_WRITTEN_NULL, f'${{1}}"{_NULL}"')
    both = (pl.lit('{"data":'), pl.col("data").fill_null("null"), pl.lit(',"old":'), old.fill_null("null"), pl.lit("}"))
    read = read_objects(events.select(POSITION, payload=pl.concat_str(*both)), sides)
    found = events.drop("data", "old").join(read.rows, on=POSITION, how="inner", maintain_order="left")
    if form == "canal":
        number = pl.int_ranges(pl.col("data").list.len().fill_null(1).clip(1)).alias(_ROW)
        found = (
            found.with_columns(number)
            .explode(_ROW)
            .with_columns(pl.col(name).list.get(pl.col(_ROW), null_on_oob=True) for name in ("data", "old"))
        )
    before = pl.struct(_before(name, kind).alias(name) for name, kind in columns.items())
    is_update, is_delete = pl.col("op") == "u", pl.col("op") == "d"
    return found.with_columns(
        before=pl.when(is_delete).then("data").when(is_update & pl.col("old").is_not_null()).then(before),
        after=pl.when(~is_delete).then("data"),
    ), read.dead.select(*PROBLEM_SCHEMA)


def _before(name: str, kind: pl.DataType) -> pl.Expr:
    """A column of the row before an update: the old value if it has changed, else the one of now."""
    old, now = pl.col("old").struct.field(name), pl.col("data").struct.field(name)
    if kind != pl.String():
        return pl.when(old.is_null()).then(now).otherwise(old)
    # Within the text of an object the mark stands for a null of its own.
    text = old.str.replace_all(f'"{_NULL}"', "null", literal=True)
    return pl.when(old.is_null()).then(now).when(old != _NULL).then(text)
