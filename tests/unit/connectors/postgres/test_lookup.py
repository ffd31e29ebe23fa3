"""Connections to PostgreSQL that the server has ended, and keys that equal nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import nan
from types import SimpleNamespace
from typing import Any

import polars as pl
import psycopg
import pytest

from headrace.connectors.postgres.connection import PostgresServer
from headrace.connectors.postgres.lookup import postgres_lookup
from headrace.operators.lookup.lookup import lookup
from tests.unit.conftest import Batches


@dataclass
class Server:
    """Answers every key with its text; a restart ends all connections."""

    read: Callable[[Any], Any] = lambda key: key
    connections: list[Connection] = field(default_factory=list)

    async def connect(self, *_: Any) -> Connection:
        self.connections.append(Connection(self))
        return self.connections[-1]

    def restart(self) -> None:
        for connection in self.connections:
            connection.ended = True


@dataclass
class Connection:
    """A connection, as far as a lookup uses it."""

    server: Server
    ended: bool = False
    closed: bool = False

    async def execute(self, query: str, keys: Sequence[Sequence[Any]]) -> Any:
        await asyncio.sleep(0.01)
        if self.ended:
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        rows = [(self.server.read(key), str(key)) for key in keys[0]]

        async def fetchall() -> list[tuple[Any, str]]:
            return rows

        return SimpleNamespace(fetchall=fetchall, description=[SimpleNamespace(name=name) for name in ("id", "name")])

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """What every address leads to."""
    server = Server()
    monkeypatch.setattr(PostgresServer, "connect_async", server.connect)
    return server


STEP = lookup(
    "names",
    postgres_lookup("host=db", "select id, name from names where id = any(%s)"),
    on="id",
    output="name STRING",
    on_failure="dead_letter",
    retries=1,
    timeout="1 minute",
)


def test_after_a_restart_of_the_server_one_more_call_is_enough(server: Server, run: Batches) -> None:
    assert len(run(STEP, pl.DataFrame({"id": range(4000)})).rows) == 4000
    assert len(server.connections) == 4
    server.restart()
    made = run(STEP, pl.DataFrame({"id": [7]}))
    assert made.rows == [{"id": 7, "name": "7"}]
    assert (made.counters["calls"], len(server.connections)) == (2, 5)
    assert [connection.closed for connection in server.connections] == [True] * 4 + [False]


def test_a_row_of_nan_answers_the_key_nan(server: Server, run: Batches) -> None:
    server.read = lambda key: float(str(key))  # as it comes over the wire
    made = run(STEP, pl.DataFrame({"id": [1.5, nan]}))
    assert [row["name"] for row in made.rows] == ["1.5", "nan"]
    assert made.letters == []
