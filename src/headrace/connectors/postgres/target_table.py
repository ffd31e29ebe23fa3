"""The table that a sink writes to: its name, its columns, and whether the rows fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from psycopg import sql

from headrace.connectors.base.decoding import inner_type
from headrace.connectors.postgres.connection import PgConnection
from headrace.errors import DefinitionError, HeadraceError
from headrace.schemas import shown_type

_PART = r'(?:"(?:[^"\0]|"")+"|[^".\0]+)'
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")
# PostgreSQL truncates longer names, so two different names could mean the same table.
_MAX_NAME_BYTES = 63
_COLUMNS = """
select a.attname, format_type(b.oid, null), b.typcategory, format_type(a.atttypid, a.atttypmod),
       a.attnotnull and not a.atthasdef and a.attidentity = '', a.attgenerated <> '', a.attidentity = 'a'
from pg_attribute a
join pg_type t on t.oid = a.atttypid
join pg_type b on b.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped
"""
# Tables, also partitioned and foreign ones. Of a view with INSTEAD OF triggers the server counts rows that they skip.
_KIND = """
select c.relkind in ('r', 'p', 'f'),
       exists (select from pg_rewrite r where r.ev_class = c.oid and r.ev_type in ('2', '3'))
from pg_class c where c.oid = to_regclass(%s)
"""
_UNIQUE_INDEX = """
select 1 from pg_index i
where i.indrelid = to_regclass(%s) and i.indisunique and i.indimmediate and i.indisvalid
  and i.indpred is null and i.indexprs is null
  and (select array_agg(a.attname::text order by a.attname::text collate "C")
       from unnest(i.indkey[:i.indnkeyatts - 1]) k
       join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k) = %s
"""
# The type of a column that we create, then types of an existing column that take the values unchanged too.
_WRITTEN: Mapping[type[pl.DataType], tuple[str, ...]] = {
    pl.Boolean: ("boolean",),
    pl.Int8: ("smallint", "integer", "bigint", "numeric", "real", "double precision"),
    pl.Int16: ("smallint", "integer", "bigint", "numeric", "real", "double precision"),
    pl.Int32: ("integer", "smallint", "bigint", "numeric", "double precision"),
    # A number too large for a narrower column becomes a dead letter, never a wrong number.
    pl.Int64: ("bigint", "smallint", "integer", "numeric"),
    pl.Float32: ("real", "double precision", "numeric"),
    pl.Float64: ("double precision", "numeric"),
    pl.String: ("text",),
    pl.Binary: ("bytea",),
    pl.Date: ("date", "timestamp without time zone"),
    pl.Duration: ("interval",),
}
# Strings, enumerations, network addresses, and user-defined types with a text form: uuid, json, xml, citext.
_TEXT_CATEGORIES = ("S", "E", "I", "U")
_TEXT_ELEMENTS = ("text", "character varying", "character", "uuid", "json", "jsonb")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table in a schema, or (None) wherever the search path finds it."""

    schema: str | None
    name: str

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.name) if self.schema is None else sql.Identifier(self.schema, self.name)


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of an existing table that a sink writes to."""

    type: str
    """Without length or precision; a domain is replaced by its base type."""
    category: str
    """PostgreSQL's one-letter category of the type."""
    shown: str
    required: bool
    """NOT NULL without a default."""
    computed: bool = False
    """Generated from other columns: nothing can be written to it."""
    numbered: bool = False
    """GENERATED ALWAYS AS IDENTITY: only COPY can write to it."""


def sql_type(kind: pl.DataType) -> str:
    """The type of a column that a sink creates."""
    match kind:
        case pl.Decimal():
            return f"numeric({kind.precision},{kind.scale})"
        case pl.Datetime():
            return f"timestamp {'without' if kind.time_zone is None else 'with'} time zone"
        case pl.List():
            return f"{sql_type(_element(kind))}[]"
    return _WRITTEN[type(kind)][0]


def has_no_type(kind: pl.DataType) -> bool:
    """Whether no column of PostgreSQL can hold values of a type."""
    if isinstance(kind, pl.List):
        return has_no_type(_element(kind))
    return not isinstance(kind, pl.Decimal | pl.Datetime) and type(kind) not in _WRITTEN


def takes(column: TargetColumn, kind: pl.DataType) -> bool:
    """Whether an existing column takes our values without changing them."""
    if isinstance(kind, pl.List):
        inner = column.type.removesuffix("[]")
        element = TargetColumn(inner, "S" if inner in _TEXT_ELEMENTS else "?", column.shown, False)
        return column.type.endswith("[]") and takes(element, _element(kind))
    if isinstance(kind, pl.String) and column.category in _TEXT_CATEGORIES:
        return column.type != "bytea"
    return column.type == sql_type(kind).partition("(")[0] or column.type in _WRITTEN.get(type(kind), ())


def _element(kind: pl.List) -> pl.DataType:
    # PostgreSQL's array types do not count dimensions: a list of lists is the same array type.
    inner = inner_type(kind)
    return _element(inner) if isinstance(inner, pl.List) else inner


def parse_table(text: str) -> TableName:
    """A table from ``table`` or ``schema.table``; letter case counts, and in double quotes a part may hold a dot."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise DefinitionError(
            "TABLE_NAME",
            f"table {text!r} is not a name. Write 'table' or 'schema.table', special characters in double quotes.",
        )
    given = [part for part in found.groups() if part is not None]
    parts = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in given]
    for part in parts:
        if len(part.encode()) > _MAX_NAME_BYTES:
            raise DefinitionError(
                "TABLE_NAME", f"{part!r} is longer than PostgreSQL's {_MAX_NAME_BYTES} bytes. Use a shorter name."
            )
    return TableName(parts[0] if len(parts) == 2 else None, parts[-1])


def existing_columns(connection: PgConnection, table: TableName) -> dict[str, TargetColumn] | None:
    """The columns of a table; None when there is no such table."""
    name = table.identifier.as_string(connection)
    if connection.execute("select to_regclass(%s)", [name]).fetchone() == (None,):
        return None
    return {column: TargetColumn(*rest) for column, *rest in connection.execute(_COLUMNS, [name])}


def create_table(
    connection: PgConnection, table: TableName, columns: Mapping[str, pl.DataType], key: Sequence[str]
) -> None:
    """Create the table, with the key as its primary key."""
    parts = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(sql_type(kind))) for name, kind in columns.items()]
    if key:
        parts.append(sql.SQL("primary key ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    statement = sql.SQL("create table if not exists {} ({})").format(table.identifier, sql.SQL(", ").join(parts))
    with connection.transaction():
        # Two sessions that create one table at the same moment would fail in spite of "if not exists".
        connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [table.name])
        connection.execute(statement)


def check_kind(connection: PgConnection, table: TableName, place: str, *, upserts: bool) -> None:
    """Fail unless it is a table, and for upserts one without rules."""
    [(is_table, has_rules)] = connection.execute(_KIND, [table.identifier.as_string(connection)])
    if not is_table:
        raise HeadraceError("NOT_A_TABLE", f"{place} is a view or another relation. Name the table behind it.")
    if upserts and has_rules:
        raise HeadraceError(
            "TABLE_HAS_RULES",
            f"{place} has a rule for inserts or updates, with which PostgreSQL replaces no rows by key. Drop the rule, "
            "or make it a trigger.",
        )


def check_columns(
    existing: Mapping[str, TargetColumn], columns: Mapping[str, pl.DataType], place: str, *, upserts: bool
) -> None:
    """Fail unless the table has a fitting column for each of ours and requires no others."""
    for name, kind in columns.items():
        column = existing.get(name)
        if column is None:
            raise HeadraceError(
                "COLUMN_MISSING",
                f"{place} has no column {name!r}, only {', '.join(existing)}. Add it, or drop it from the rows.",
            )
        if column.computed or (column.numbered and upserts):
            raise HeadraceError(
                "COLUMN_GENERATED",
                f"{place}: column {name!r} is GENERATED ALWAYS: the server gives its values. Drop it from the rows, or "
                "alter the column.",
            )
        if not takes(column, kind):
            raise HeadraceError(
                "COLUMN_TYPE",
                f"{place}: column {name!r} is {column.shown}, the rows have {shown_type(kind)}, which needs "
                f"{sql_type(kind)}. Cast the rows or alter the column.",
            )
    for name, column in existing.items():
        if column.required and name not in columns:
            raise HeadraceError(
                "COLUMN_MISSING",
                f"{place}: column {name!r} is NOT NULL without a default. Add it to the rows, or give it a default.",
            )


def check_unique(connection: PgConnection, table: TableName, key: Sequence[str], place: str) -> None:
    """Fail unless there is a unique index on exactly the key's columns, which ON CONFLICT needs."""
    arguments = [table.identifier.as_string(connection), sorted(key, key=str.encode)]
    if connection.execute(_UNIQUE_INDEX, arguments).fetchone() is None:
        columns = ", ".join(key)
        raise HeadraceError(
            "UPSERT_WITHOUT_UNIQUE",
            f"{place}: rows cannot be replaced by key. Run: create unique index on ... ({columns}).",
        )
