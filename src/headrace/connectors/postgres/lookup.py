"""PostgreSQL as a lookup service: one query for many keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

import polars as pl
import psycopg

from headrace.connectors.postgres.connection import PostgresServer, is_refused, is_transient, summary
from headrace.errors import DefinitionError
from headrace.operators.lookup.service import Answer, LookupFailure
from headrace.secrets import Secret, call_text
from headrace.stability import stable

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, repr=False)
class PostgresLookup:
    """A server and the query it is sent."""

    server: PostgresServer
    query: str
    keys_per_call: int = 1000
    max_calls: int = 4
    as_text: bool = False

    def check(self, keys: Mapping[str, pl.DataType], *, step: str) -> None:
        parameters = self.query.replace("%%", "").count("%s")
        if parameters != len(keys):
            raise DefinitionError(
                "QUERY_PARAMETERS",
                f"step {step!r}: the query has {parameters} placeholders %s, but on= names {len(keys)} columns. "
                "Write 'id = any(%s)', or '(a, b) in (select * from unnest(%s::bigint[], %s::text[]))'.",
            )

    def requests(self, keys: pl.DataFrame) -> list[Any]:
        return [(keys.columns, values) for values in keys.iter_rows()]

    def connect(self, in_flight: int) -> PostgresLookupClient:
        return PostgresLookupClient(self.server, self.query)

    def __repr__(self) -> str:
        return call_text(postgres_lookup, self.server.shown, self.query, password=self.server.password)


@dataclass(frozen=True, slots=True)
class PostgresLookupClient:
    """A process's connections to the server, one for each concurrent call."""

    server: PostgresServer
    query: str
    free: list[psycopg.AsyncConnection[Any]] = field(default_factory=list)

    async def fetch(self, requests: Sequence[Any]) -> Sequence[Answer]:
        names = requests[0][0]
        keys = [_key(values) for _, values in requests]
        try:
            columns, rows = await self._query([list(values) for values in zip(*keys, strict=True)])
        except psycopg.Error as problem:
            # A refused connection concerns every key, so it counts for the circuit breaker as an outage does.
            again = is_transient(problem) or is_refused(problem)
            raise LookupFailure("LOOKUP_FAILED", f"PostgreSQL says: {summary(problem)}", retryable=again) from None
        found = _by_key(rows, columns, names)
        unexpected = found.keys() - set(keys)
        if unexpected:
            returned = dict(zip(names, unexpected.pop(), strict=True))
            raise LookupFailure(
                "ANSWER_NOT_ASKED",
                f"the query returned {returned!r}, which was not asked for; its type must be that of the rows' column, "
                "as in id::text",
                retryable=False,
            )
        return [found.get(key) for key in keys]

    async def _query(self, parameters: list[list[Any]]) -> tuple[list[str], list[tuple[Any, ...]]]:
        connection = self.free.pop() if self.free else await self.server.connect_async()
        try:
            cursor = await connection.execute(self.query, parameters)
            rows = await cursor.fetchall()
        except BaseException as problem:
            await connection.close()
            if isinstance(problem, psycopg.OperationalError):
                # A server that closed one connection has usually closed all of them.
                await self.close()
            raise
        self.free.append(connection)
        return [column.name for column in cursor.description or ()], rows

    async def close(self) -> None:
        while self.free:
            await self.free.pop().close()


def _by_key(rows: Sequence[Sequence[Any]], columns: Sequence[str], names: Sequence[str]) -> dict[Key, Answer]:
    missing = [name for name in names if name not in columns]
    if missing:
        raise LookupFailure(
            "ANSWER_WITHOUT_KEY",
            f"the query returns {', '.join(columns)} but not {missing[0]}, so rows cannot be matched with keys; select "
            f"it, as in 'select {missing[0]}, ...'",
            retryable=False,
        )
    found: dict[Key, Answer] = {}
    for row in rows:
        answer = dict(zip(columns, row, strict=True))
        key = _key(answer[name] for name in names)
        if key in found:
            found[key] = LookupFailure("ANSWER_TWICE", "the query returned several rows for the key", retryable=False)
        else:
            found[key] = answer
    return found


def _key(values: Iterable[Any]) -> Key:
    """A key for a dict: NaN is equal only to itself as an object, so all NaN become the same one."""
    return tuple(nan if isinstance(value, float) and isnan(value) else value for value in values)


@stable
def postgres_lookup(dsn: str, query: str, *, password: str | Secret | None = None) -> PostgresLookup:
    """Ask PostgreSQL for up to 1,000 keys with one query; it returns the key's columns and those of ``output``.

    >>> import headrace as hr
    >>> hr.postgres_lookup("host=db dbname=shop", "select id, name, tier from customers where id = any(%s)")
    hr.postgres_lookup('host=db dbname=shop', 'select id, name, tier from customers where id = any(%s)')
    """
    return PostgresLookup(PostgresServer(dsn, password), query)
