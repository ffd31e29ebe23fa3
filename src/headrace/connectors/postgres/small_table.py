"""The result of a PostgreSQL query as a small table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import psycopg

from headrace.connectors.base.conversion import fitted
from headrace.connectors.postgres.connection import PostgresServer, is_transient, summary
from headrace.errors import HeadraceError
from headrace.schemas import parse_ddl, polars_schema
from headrace.secrets import Secret, call_text
from headrace.stability import stable


@dataclass(frozen=True, slots=True, repr=False)
class PostgresTable:
    """A query whose rows are the table."""

    query: str
    server: PostgresServer
    schema: str

    def columns(self) -> Mapping[str, pl.DataType]:
        return polars_schema(parse_ddl(self.schema))

    def read(self) -> pl.DataFrame:
        columns, table = self.columns(), f"the query of {self.server.address}"
        try:
            with self.server.connect() as connection, connection.cursor() as cursor:
                # Without it timestamps would come in the server's time zone.
                cursor.execute("set time zone 'UTC'")
                rows = cursor.execute(self.query.encode()).fetchall()
                found = [column.name for column in cursor.description or ()]
        except psycopg.Error as problem:
            advice = "Check that the server is up" if is_transient(problem) else "Correct the query or dsn="
            raise HeadraceError("TABLE_UNREADABLE", f"{table} failed: {summary(problem)}. {advice}.") from None
        values = list(zip(*rows, strict=True)) if rows else [()] * len(found)
        given = [(name, value) for name, value in zip(found, values, strict=True) if name in columns]
        try:
            read = pl.DataFrame([pl.Series(name, value, columns[name]) for name, value in given])
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as problem:
            raise HeadraceError(
                "TABLE_TYPE",
                f"{table} returns values that do not fit {self.schema!r}: {problem}. Cast them, as in id::text.",
            ) from None
        return fitted(read, columns, table=table)

    def __repr__(self) -> str:
        server = self.server
        return call_text(postgres_table, self.query, dsn=server.shown, schema=self.schema, password=server.password)


@stable
def postgres_table(query: str, *, dsn: str, schema: str, password: str | Secret | None = None) -> PostgresTable:
    """A small table, for ``hr.broadcast_join``, that is the result of a query.

    >>> import headrace as hr
    >>> customers = "select id, level from customers"
    >>> hr.postgres_table(customers, dsn="host=db dbname=shop", schema="id BIGINT, level STRING")
    hr.postgres_table('select id, level from customers', dsn='host=db dbname=shop', schema='id BIGINT, level STRING')
    """
    parse_ddl(schema)
    return PostgresTable(query, PostgresServer(dsn, password), schema)
