"""The result of a query to PostgreSQL as a small table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import psycopg

from headrace.connectors.base.small_table import fitted
from headrace.connectors.postgres.connection import PostgresServer, primary
from headrace.errors import HeadraceError
from headrace.schemas import parse_ddl, polars_schema
from headrace.secrets import Secret


@dataclass(frozen=True, slots=True, repr=False)
class PostgresTable:
    """A server and the query whose rows are the table."""

    query: str
    server: PostgresServer
    schema: str

    def columns(self) -> Mapping[str, pl.DataType]:
        """The declared columns."""
        return polars_schema(parse_ddl(self.schema))

    def read(self) -> pl.DataFrame:
        """All rows that the query gives now."""
        columns, table = self.columns(), f"the query of {self.server.address}"
        try:
            with self.server.connect() as connection, connection.cursor() as cursor:
                # Times then come in UTC, whatever the server's own zone is.
                cursor.execute("set time zone 'UTC'")
                rows = cursor.execute(self.query.encode()).fetchall()
                found = [column.name for column in cursor.description or ()]
        except psycopg.Error as problem:
            raise HeadraceError("TABLE_UNREADABLE", f"{table} failed: {primary(problem)}.") from None
        values = list(zip(*rows, strict=True)) if rows else [()] * len(found)
        try:
            read = pl.DataFrame(
                [
                    pl.Series(name, column, columns[name])
                    for name, column in zip(found, values, strict=True)
                    if name in columns
                ]
            )
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as problem:
            raise HeadraceError(
                "TABLE_TYPE",
                f"{table} gives values that do not fit {self.schema!r}: {problem}. Cast them in the query, as in "
                "id::text.",
            ) from None
        return fitted(read, columns, table=table)

    def __repr__(self) -> str:
        said = f"{self.query!r}, dsn={self.server.shown!r}, schema={self.schema!r}{self.server.shown_password}"
        return f"hr.postgres_table({said})"


def postgres_table(query: str, *, dsn: str, schema: str, password: str | Secret | None = None) -> PostgresTable:
    """A small table that is the result of a query.

    >>> postgres_table("select id, level from customers", dsn="host=db dbname=shop", schema="id BIGINT, level STRING")
    hr.postgres_table('select id, level from customers', dsn='host=db dbname=shop', schema='id BIGINT, level STRING')
    """
    parse_ddl(schema)
    return PostgresTable(query, PostgresServer(dsn, password), schema)
