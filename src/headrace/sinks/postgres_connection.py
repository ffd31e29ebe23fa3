"""Connections to PostgreSQL, kept in the process, and what its errors mean to a flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.errors import DefinitionError, HeadraceError
from headrace.secrets import HIDDEN, Secret, revealed
from headrace.sinks.sink import Unreachable

_POOL: dict[Server, psycopg.Connection[Any]] = {}
# Connection lost, resources short, transaction lost to another, server stopping or a standby: all pass by themselves.
_PASSING = ("08", "25P03", "25006", "40", "53", "55P03", "57")
_IDS = {"42501": "SINK_REFUSED", "42P01": "TABLE_MISSING", "42703": "COLUMN_MISSING", "3F000": "SCHEMA_MISSING"}
# libpq gives no code for an error at connecting, only the server's sentence.
_REFUSALS = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "pg_hba.conf",
    "permission denied",
    "not permitted to log in",
    "SSL was required",
    "certificate verify failed",
)


@dataclass(frozen=True, slots=True, repr=False)
class Server:
    """Where a PostgreSQL server is, and the password for it."""

    dsn: str
    password: str | Secret | None

    @property
    def shown(self) -> str:
        """The connection string for people, without passwords."""
        settings = _settings(self.dsn)
        if not any("password" in name for name in settings):
            return self.dsn
        return make_conninfo("", **{name: HIDDEN if "password" in name else value for name, value in settings.items()})

    @property
    def address(self) -> str:
        """Host, port and database, as far as the connection string names them."""
        settings = _settings(self.dsn)
        host = ":".join(str(settings[name]) for name in ("host", "port") if name in settings)
        return "/".join(part for part in (host or "localhost", str(settings.get("dbname", ""))) if part)

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection, outside a transaction."""
        given = _settings(self.dsn)
        if self.password is not None:
            given["password"] = revealed(self.password)
        usual: dict[str, Any] = {"connect_timeout": 10, "tcp_user_timeout": 30_000, "application_name": "headrace"}
        settings = make_conninfo("", **(usual | given | {"client_encoding": "UTF8"}))
        return psycopg.connect(settings, autocommit=True, prepare_threshold=None)

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


def parse_server(dsn: str, password: str | Secret | None) -> Server:
    """The server that a keyword string or ``postgresql://`` URL names.

    >>> server = parse_server("postgresql://ann:hunter2@db:5433/shop", None)
    >>> server.shown, server.address
    ('user=ann password=*** dbname=shop host=db port=5433', 'db:5433/shop')
    """
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # The parser's own sentence may quote a part of the password.
        raise DefinitionError(
            "DSN_INVALID",
            "dsn= is neither keywords like 'host=db dbname=shop user=ann' nor a URL like "
            "'postgresql://ann@db:5432/shop'. Mend it; give the password apart, as password=hr.secret(...).",
        ) from None
    return Server(dsn, password)


def meaning(problem: psycopg.Error, place: str) -> Exception:
    """``Unreachable`` for what passes by itself, else an error that says what to mend."""
    state, said = problem.sqlstate, primary(problem)
    if state is None and isinstance(problem, psycopg.OperationalError):
        if not any(words in said for words in _REFUSALS):
            return Unreachable(f"{place}: {said}")
        return HeadraceError(
            "SINK_REFUSED", f"{place}: {said}. Check user, password, database and the right to connect."
        )
    if state is not None and state.startswith(_PASSING):
        return Unreachable(f"{place}: {said}")
    return HeadraceError(_IDS.get(state or "", "SINK_FAILED"), f"{place}: {said} (SQLSTATE {state}).")


def primary(problem: psycopg.Error) -> str:
    """The error in one line."""
    text = problem.diag.message_primary or str(problem).strip() or type(problem).__name__
    return " ".join(text.split())


def _settings(dsn: str) -> dict[str, Any]:
    return {name: value for name, value in conninfo_to_dict(dsn).items() if value is not None}
