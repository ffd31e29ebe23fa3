"""The table that rows go to: its name, what it looks like, and whether our rows fit into it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import psycopg
from psycopg import sql

from headrace.connectors.postgres.types import Column, sql_type, takes
from headrace.errors import DefinitionError, HeadraceError

_PART = r'(?:"(?:[^"\0]|"")+"|[^".\0]+)'
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")
# PostgreSQL would cut a longer name, and so could take one table for another.
_LONGEST = 63


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, in a schema or (None) wherever the search path finds it."""

    schema: str | None
    name: str

    @property
    def identifier(self) -> sql.Identifier:
        """The quoted name."""
        return sql.Identifier(self.name) if self.schema is None else sql.Identifier(self.schema, self.name)


def parse_table(text: str) -> TableName:
    """A table from ``table`` or ``schema.table``; letter case counts, and in double quotes a part may hold a dot.

    >>> parse_table("sales.spend"), parse_table('"odd.name"')
    (TableName(schema='sales', name='spend'), TableName(schema=None, name='odd.name'))
    """
    found = _NAME.fullmatch(text)
    if found is None:
        raise DefinitionError(
            "TABLE_NAME", f"table {text!r} is no name. Write 'table' or 'schema.table', odd names in double quotes."
        )
    for part in (parts := [_unquoted(part) for part in found.groups() if part is not None]):
        if len(part.encode()) > _LONGEST:
            raise DefinitionError("TABLE_NAME", f"{part!r} is longer than the {_LONGEST} bytes that PostgreSQL keeps.")
    return TableName(parts[0] if len(parts) == 2 else None, parts[-1])


def existing_columns(connection: psycopg.Connection[Any], table: TableName) -> dict[str, Column] | None:
    """The columns of a table; None when there is no such table."""
    name = table.identifier.as_string(connection)
    if connection.execute("select to_regclass(%s)", [name]).fetchone() == (None,):
        return None
    found = connection.execute(
        """
        select a.attname, format_type(b.oid, null), b.typcategory, format_type(a.atttypid, a.atttypmod),
               a.attnotnull and not a.atthasdef and a.attidentity = ''
        from pg_attribute a
        join pg_type t on t.oid = a.atttypid
        join pg_type b on b.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
        where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped
        """,
        [name],
    )
    return {name: Column(*rest) for name, *rest in found}


def create_table(
    connection: psycopg.Connection[Any], table: TableName, columns: Mapping[str, pl.DataType], key: Sequence[str]
) -> None:
    """Create the table for our columns, the key its primary key."""
    parts = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(sql_type(kind, name))) for name, kind in columns.items()
    ]
    if key:
        parts.append(sql.SQL("primary key ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    statement = sql.SQL("create table if not exists {} ({})").format(table.identifier, sql.SQL(", ").join(parts))
    with connection.transaction():
        # Two that create one table at the same moment would fail in spite of "if not exists".
        connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [table.name])
        connection.execute(statement)


def check_fit(existing: Mapping[str, Column], columns: Mapping[str, pl.DataType], place: str) -> None:
    """Fail unless each of our columns has one in the table that takes it, and the table asks for no other."""
    for name, kind in columns.items():
        column = existing.get(name)
        if column is None:
            raise HeadraceError(
                "COLUMN_MISSING",
                f"{place} has no column {name!r}. Add it, or leave it out of the rows. Existing columns: "
                f"{', '.join(existing)}.",
            )
        if not takes(column, kind):
            raise HeadraceError(
                "COLUMN_TYPE",
                f"{place}: column {name!r} is {column.shown}, the rows have {kind}, for which {sql_type(kind, name)} "
                "is right. Cast the rows or alter the column.",
            )
    for name, column in existing.items():
        if column.required and name not in columns:
            raise HeadraceError(
                "COLUMN_MISSING",
                f"{place}: column {name!r} is not null and has no default, but the rows have no such column.",
            )


def check_unique(connection: psycopg.Connection[Any], table: TableName, key: Sequence[str], place: str) -> None:
    """Fail unless a unique index of exactly the key's columns lets an upsert find the row to replace."""
    found = connection.execute(
        """
        select 1 from pg_index i
        where i.indrelid = to_regclass(%s) and i.indisunique and i.indimmediate and i.indisvalid
          and i.indpred is null and i.indexprs is null
          and (select array_agg(a.attname::text order by a.attname::text collate "C")
               from unnest(i.indkey[:i.indnkeyatts - 1]) k
               join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k) = %s
        """,
        [table.identifier.as_string(connection), sorted(key, key=str.encode)],
    ).fetchone()
    if found is None:
        columns = ", ".join(key)
        raise HeadraceError(
            "UPSERT_WITHOUT_UNIQUE",
            f"{place} has no unique index on ({columns}), so rows cannot be replaced by it. Create one: "
            f"create unique index on ... ({columns}).",
        )


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part
