"""What is wrong with a server or a table, found before the first batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import psycopg

from headrace.connectors.base.decoding import type_name
from headrace.connectors.postgres.changes.catalogue import Table
from headrace.connectors.postgres.changes.server import Server
from headrace.connectors.postgres.changes.types import ddl_type, holds
from headrace.errors import HeadraceError


def check_server(connection: psycopg.Connection[Any], server: Server) -> None:
    """The server logs changes, and the user may read them."""
    rows = connection.execute(
        "select current_setting('wal_level'), pg_is_in_recovery(), rolreplication or rolsuper, current_user "
        "from pg_roles where rolname = current_user"
    ).fetchall()
    level, standby, allowed, user = rows[0]
    if level != "logical":
        raise HeadraceError(
            "WAL_LEVEL",
            f"PostgreSQL {server.address} has wal_level={level}, so it does not log what changes of rows can be read "
            "from. ALTER SYSTEM SET wal_level = 'logical', then restart the server.",
        )
    if standby:
        raise HeadraceError(
            "SOURCE_REFUSED", f"PostgreSQL {server.address} is a standby, which has no slots. Name its primary in dsn=."
        )
    if not allowed:
        raise HeadraceError(
            "SOURCE_REFUSED",
            f'PostgreSQL {server.address}: user {user!r} may not read changes. ALTER ROLE "{user}" REPLICATION.',
        )


def check_fit(table: Table, declared: Mapping[str, pl.DataType]) -> None:
    """Every declared column exists and can hold what is in the table's."""
    known = {column.name: column for column in table.columns}
    for name, kind in declared.items():
        if name not in known:
            raise HeadraceError(
                "COLUMN_MISSING",
                f"table {table.name} has no column {name!r}. Existing columns: {', '.join(known)} (a generated column "
                "is not in PostgreSQL's changes).",
            )
        if not holds(kind, known[name].shown):
            fitting = ddl_type(known[name].shown)
            text = "" if fitting == "STRING" else ", or as STRING for the text that PostgreSQL writes"
            raise HeadraceError(
                "COLUMN_TYPE",
                f"table {table.name}: column {name!r} is {known[name].shown}, which {type_name(kind)} cannot hold. "
                f"Declare it as {fitting}{text}.",
            )
