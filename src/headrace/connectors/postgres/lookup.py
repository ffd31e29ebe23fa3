"""PostgreSQL as a service: one query for many keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

import polars as pl
import psycopg

from headrace.connectors.postgres.connection import PostgresServer, primary
from headrace.errors import DefinitionError
from headrace.operators.lookup.service import Answer, LookupFailure
from headrace.secrets import Secret


@dataclass(frozen=True, slots=True, repr=False)
class PostgresLookup:
    """A server and the query that it is asked."""

    server: PostgresServer
    query: str
    at_once: int = 1000
    together: int = 4
    in_text: bool = False

    def check(self, keys: Mapping[str, pl.DataType], *, step: str) -> None:
        """The query has a place for the values of each column of the key."""
        places = self.query.replace("%%", "").count("%s")
        if places != len(keys):
            raise DefinitionError(
                "QUERY_PARAMETERS",
                f"step {step!r}: the query has {places} times %s, but on= names {len(keys)} columns; each %s is an "
                "array of one column's values. Write '... where id = any(%s)', or for two columns '... where (a, b) in "
                "(select * from unnest(%s::bigint[], %s::text[]))'.",
            )

    def questions(self, keys: pl.DataFrame) -> list[Any]:
        """The values of each key, with the names of their columns."""
        return [(keys.columns, values) for values in keys.iter_rows()]

    def connect(self, in_flight: int) -> PostgresConnection:
        """Connections are made when they are needed."""
        return PostgresConnection(self.server, self.query)

    def __repr__(self) -> str:
        return f"hr.postgres_lookup({self.server.shown!r}, {self.query!r}{self.server.shown_password})"


@dataclass(frozen=True, slots=True)
class PostgresConnection:
    """A process's connections to a server, as many as calls run at the same time."""

    server: PostgresServer
    query: str
    free: list[psycopg.AsyncConnection[Any]] = field(default_factory=list)

    async def ask(self, questions: Sequence[Any]) -> Sequence[Answer]:
        """The row of each key."""
        names = questions[0][0]
        keys = [_key(values) for _, values in questions]
        connection = self.free.pop() if self.free else await self.server.connect_async()
        try:
            cursor = await connection.execute(self.query, [list(values) for values in zip(*keys, strict=True)])
            rows = await cursor.fetchall()
            columns = [column.name for column in cursor.description or ()]
        except BaseException as problem:
            await connection.close()
            if isinstance(problem, psycopg.OperationalError):
                # A server that has ended one connection has mostly ended all: the next call connects anew.
                await self.close()
            if isinstance(problem, psycopg.Error):
                raise _meaning(problem) from None
            raise
        self.free.append(connection)
        found = _by_key(rows, columns, names)
        strange = found.keys() - set(keys)
        if strange:
            returned = dict(zip(names, strange.pop(), strict=True))
            raise LookupFailure(
                "ANSWER_NOT_ASKED",
                f"the query returned {returned!r}, which was not asked for; its type must be that of the rows' column, "
                "as in id::text",
                again=False,
            )
        return [found.get(key) for key in keys]

    async def close(self) -> None:
        """Close all connections."""
        while self.free:
            await self.free.pop().close()


def _by_key(rows: Sequence[Sequence[Any]], columns: Sequence[str], names: Sequence[str]) -> dict[Any, Answer]:
    missing = [name for name in names if name not in columns]
    if missing:
        raise LookupFailure(
            "ANSWER_WITHOUT_KEY",
            f"the query returns {', '.join(columns)} but not {missing[0]}, so it cannot be told which key a row "
            f"answers; select it, as in 'select {missing[0]}, ...'",
            again=False,
        )
    found: dict[Any, Answer] = {}
    for row in rows:
        answer = dict(zip(columns, row, strict=True))
        key = _key(answer[name] for name in names)
        if key in found:
            found[key] = LookupFailure("ANSWER_TWICE", "the query returned several rows for the key", again=False)
        else:
            found[key] = answer
    return found


def _key(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values of a key as it is found by; NaN is found only by the same object."""
    return tuple(nan if isinstance(value, float) and isnan(value) else value for value in values)


def _meaning(problem: psycopg.Error) -> LookupFailure:
    """A mistake in the query stays one however often it is asked."""
    lasting = isinstance(problem, psycopg.ProgrammingError | psycopg.DataError | psycopg.NotSupportedError)
    return LookupFailure("LOOKUP_FAILED", f"PostgreSQL says: {primary(problem)}", again=not lasting)


def postgres_lookup(dsn: str, query: str, *, password: str | Secret | None = None) -> PostgresLookup:
    """Ask PostgreSQL for up to 1,000 keys with one query, whose rows have the key's columns and those of ``output``.

    >>> postgres_lookup("host=db dbname=shop", "select id, name, tier from customers where id = any(%s)")
    hr.postgres_lookup('host=db dbname=shop', 'select id, name, tier from customers where id = any(%s)')
    """
    return PostgresLookup(PostgresServer(dsn, password), query)
