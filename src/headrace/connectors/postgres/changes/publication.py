"""A publication: what makes the server tell of a table's changes, and whether it has done so all the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from headrace.connectors.postgres.changes.alterations import ANEW, Altered, dropped, renamed
from headrace.connectors.postgres.changes.birth import Birth
from headrace.connectors.postgres.changes.catalogue import Table, split_name
from headrace.connectors.postgres.changes.slot import Slot
from headrace.errors import HeadraceError

INCOMPLETE = "PUBLICATION_INCOMPLETE"
_NAMES = """
select c.oid::int8, format('%%s.%%s', n.nspname, c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = any(%s::int8[]::oid[])
"""
_NUMBERS = """
select p.oid::int8 from pg_publication p where p.pubname = %(publication)s
union all
select r.oid::int8 from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
where p.pubname = %(publication)s and r.prrelid = any(%(tables)s::int8[]::oid[])
"""


def publish(connection: psycopg.Connection[Any], slot: Slot, tables: Sequence[Table]) -> None:
    """Make the publication, or check that the one that is there has all changes of all tables."""
    query = "select from pg_publication where pubname = %s"
    if connection.execute(query, (slot.publication,)).fetchone() is None:
        names = sql.SQL(", ").join(sql.Identifier(*split_name(table.name)) for table in tables)
        connection.execute(
            sql.SQL("create publication {} for table {} with (publish_via_partition_root = true)").format(
                sql.Identifier(slot.publication), names
            )
        )
        return
    lack = _lack(connection, slot, tables)
    if lack is not None:
        raise HeadraceError(INCOMPLETE, f"publication {slot.publication!r} {lack[0]}. {lack[1]}")


def published(connection: psycopg.Connection[Any], slot: Slot, tables: Sequence[Table]) -> tuple[int, ...]:
    """The numbers of the publication and of the tables' places in it."""
    given = {"publication": slot.publication, "tables": [table.oid for table in tables]}
    return tuple(number for (number,) in connection.execute(_NUMBERS, given).fetchall())


def numbered(connection: psycopg.Connection[Any], slot: Slot, birth: Birth) -> Birth:
    """What an earlier version has written of a beginning, with the numbers that it left out, as they are now."""
    tables = []
    for table in birth.tables:
        query = "select to_regclass(format('%%I.%%I', %s::text, %s::text))::oid::int8"
        oid = connection.execute(query, split_name(table.name)).fetchall()[0][0]
        if oid is None:
            raise dropped(table.name)
        tables.append(replace(table, oid=oid))
    return replace(birth, tables=tuple(tables), published=published(connection, slot, tables))


def check_followed(connection: psycopg.Connection[Any], slot: Slot, birth: Birth) -> None:
    """An error unless the server has told of every table of the beginning up to now."""
    found = dict(connection.execute(_NAMES, ([table.oid for table in birth.tables],)).fetchall())
    for table in birth.tables:
        if table.oid not in found:
            raise dropped(table.name)
        if found[table.oid] != table.name:
            raise renamed(table.name, found[table.oid])
    lack = _lack(connection, slot, birth.tables)
    # A table that was taken out and put back is complete, but the server never tells what happened in between.
    if lack is None and not set(birth.published) <= set(published(connection, slot, birth.tables)):
        lack = ("was made anew, or a table was taken out of it for a time", "")
    if lack is not None:
        raise Altered(
            INCOMPLETE, f"publication {slot.publication!r} {lack[0]}, so changes made since then are missing. {ANEW}"
        )


def _lack(connection: psycopg.Connection[Any], slot: Slot, tables: Sequence[Table]) -> tuple[str, str] | None:
    """What is wrong with a publication, and what to do before anything is read from it."""
    name = slot.publication
    found = connection.execute(
        "select pubinsert and pubupdate and pubdelete and pubtruncate from pg_publication where pubname = %s", (name,)
    ).fetchone()
    if found is None:
        return "is gone", ""
    if not found[0]:
        mend = f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')."
        return "leaves out some kinds of changes", mend
    # Columns of newer servers are asked for by name, so that older ones may lack them.
    shown = connection.execute(
        "select format('%%s.%%s', schemaname, tablename), to_jsonb(p) ->> 'rowfilter' from pg_publication_tables p "
        "where pubname = %s",
        (name,),
    ).fetchall()
    filtered = dict(shown)
    for table in tables:
        if table.name not in filtered:
            return f"has no table {table.name}", f"ALTER PUBLICATION {name} ADD TABLE {table.name}."
        if filtered[table.name] is not None:
            mend = "Rows would appear and vanish: remove the condition, or publish the table in another publication."
            return f"shows only rows of {table.name} where {filtered[table.name]}", mend
    return None
