"""Connections to PostgreSQL, kept in the process, and what its errors mean to a flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from headrace.connectors.base.sink import Unreachable
from headrace.connectors.postgres.connection import PostgresServer, is_refused, primary
from headrace.errors import HeadraceError

_POOL: dict[Server, psycopg.Connection[Any]] = {}
# Connection lost, resources short, transaction lost to another, server stopping or a standby: all pass by themselves.
_PASSING = ("08", "25P03", "25006", "40", "53", "55P03", "57")
_IDS = {"42501": "SINK_REFUSED", "42P01": "TABLE_MISSING", "42703": "COLUMN_MISSING", "3F000": "SCHEMA_MISSING"}


class Server(PostgresServer):
    """A server that a process keeps one connection to."""

    __slots__ = ()

    @contextmanager
    def connection(self, place: str) -> Iterator[psycopg.Connection[Any]]:
        """The process's connection to this server; errors are sorted into what passes and what must be mended."""
        try:
            connection = _POOL.get(self)
            if connection is None or connection.closed:
                connection = _POOL[self] = self.connect()
            yield connection
        except psycopg.Error as problem:
            self.drop()
            raise meaning(problem, place) from None
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Forget the connection: what state it is in is not known."""
        connection = _POOL.pop(self, None)
        if connection is not None:
            connection.close()


def begin(connection: psycopg.Connection[Any], session: str) -> None:
    """Settings for the rest of a transaction; ``session`` is its name among the server's sessions."""
    connection.execute(
        sql.SQL(
            # Else a deferred constraint would fail at the commit, where it cannot be told which row is to blame.
            "set constraints all immediate; set local lock_timeout = '5s'; set local application_name = {}"
        ).format(sql.Literal(session))
    )


def meaning(problem: psycopg.Error, place: str) -> Exception:
    """``Unreachable`` for what passes by itself, else an error that says what to mend."""
    state, said = problem.sqlstate, primary(problem)
    if state is None and isinstance(problem, psycopg.OperationalError):
        if not is_refused(problem):
            return Unreachable(f"{place}: {said}")
        return HeadraceError(
            "SINK_REFUSED", f"{place}: {said}. Check user, password, database and the right to connect."
        )
    if state is not None and state.startswith(_PASSING):
        return Unreachable(f"{place}: {said}")
    return HeadraceError(_IDS.get(state or "", "SINK_FAILED"), f"{place}: {said} (SQLSTATE {state}).")
