"""Connections to a PostgreSQL server, and what its errors mean; shared by source, sink, lookup and small table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.connectors.base.sink import Unreachable
from headrace.errors import DefinitionError, HeadraceError
from headrace.redaction import HIDDEN, is_torn, learn
from headrace.secrets import Secret, revealed

PgConnection = psycopg.Connection[Any]

_DEFAULTS: dict[str, Any] = {
    "application_name": "headrace",
    "connect_timeout": 10,
    # A server that vanishes without closing the connection is noticed within a minute, sending or waiting.
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
# The text form of values depends on these settings, and every log must be written in the same form.
_FOR_CHANGES = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "search_path": "pg_catalog",
    # A row-level security policy must raise an error instead of hiding rows from the snapshot.
    "row_security": "off",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
_TRANSIENT = (
    "08",  # connection exceptions: the connection was lost or could not be made
    "25006",  # read-only transaction: the server is a standby until a failover or promotion is over
    "25P03",  # the server ended a session that was idle in its transaction, as one of a frozen process
    "40",  # the transaction lost to another: deadlock, serialization failure
    # Disk full, out of memory, too many connections. Not 53400: a configured limit stays until somebody raises it.
    "53000",
    "53100",
    "53200",
    "53300",
    "55006",  # object in use, as a replication slot whose last session is still ending
    "55P03",  # a lock was not granted within lock_timeout
    "57",  # operator intervention: shutdown, crash recovery, start-up, a cancelled query
)
# An error while connecting has no SQLSTATE, only the server's message. These do not go away by waiting.
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
_NO_PRIVILEGE = "42501"
_SINK_IDS = {"42P01": "TABLE_MISSING", "42703": "COLUMN_MISSING", "3F000": "SCHEMA_MISSING"}
_POOL: dict[PostgresServer, PgConnection] = {}


@dataclass(frozen=True, slots=True, repr=False)
class PostgresServer:
    """A server, named by a keyword string or ``postgresql://`` URL, and the password for it.

    >>> server = PostgresServer("postgresql://ann:hunter2@db:5433/shop")
    >>> server.shown, server.address
    ('user=ann password=*** dbname=shop host=db port=5433', 'db:5433/shop')
    """

    dsn: str
    password: str | Secret | None = None

    def __post_init__(self) -> None:
        if is_torn(self.dsn, by="/?#@") or not _is_readable(self.dsn):
            if "pass" in self.dsn or "@" in self.dsn:
                # The error shows the author's line, and nobody knows where in it the password ends.
                learn(self.dsn)
            raise DefinitionError(
                "DSN_INVALID",
                "dsn= is neither like 'host=db dbname=shop user=ann' nor like 'postgresql://ann@db:5432/shop'. "
                "Correct it, and pass the password as password=hr.secret(...).",
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in conninfo_to_dict(self.dsn).items() if value is not None}

    @property
    def shown(self) -> str:
        """The connection string without passwords."""
        hidden = {name: HIDDEN for name in self.settings if "password" in name}
        return make_conninfo("", **(self.settings | hidden)) if hidden else self.dsn

    @property
    def address(self) -> str:
        """Host, port and database, as far as the connection string names them."""
        settings = self.settings
        host = ":".join(str(settings[name]) for name in ("host", "port") if name in settings)
        return "/".join(part for part in (host or "localhost", str(settings.get("dbname", ""))) if part)

    @property
    def place(self) -> str:
        return f"PostgreSQL {self.address}"

    def connect(self, **settings: str) -> PgConnection:
        """A new connection in autocommit mode; ``settings`` override those of the connection string."""
        return psycopg.connect(self._conninfo(**settings), autocommit=True, prepare_threshold=None)

    async def connect_async(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(self._conninfo(), autocommit=True, prepare_threshold=None)

    def connect_for_changes(self, session: str = "headrace", **settings: str) -> PgConnection:
        """A connection that returns values in one fixed text form; ``session`` is its application_name."""
        fixed = " ".join(f"-c {name}={value}" for name, value in _FOR_CHANGES.items())
        options = " ".join(filter(None, (self.settings.get("options", ""), fixed)))
        return self.connect(application_name=session, options=options, **settings)

    @contextmanager
    def pooled(self, place: str) -> Iterator[PgConnection]:
        """The process's own connection to this server, for a sink; its errors become ours."""
        try:
            connection = _POOL.get(self)
            if connection is None or connection.closed:
                connection = _POOL[self] = self.connect()
            yield connection
        except BaseException as problem:
            # The connection may be in any state.
            self.drop_pooled()
            if isinstance(problem, psycopg.Error):
                raise server_error(problem, place, "SINK") from None
            raise

    def drop_pooled(self) -> None:
        connection = _POOL.pop(self, None)
        if connection is not None:
            connection.close()

    def _conninfo(self, **settings: str) -> str:
        password = {} if self.password is None else {"password": revealed(self.password)}
        given = {name: learn(value) if "password" in name else value for name, value in self.settings.items()}
        return make_conninfo("", **(_DEFAULTS | given | password | {"client_encoding": "UTF8"} | settings))


def _is_readable(dsn: str) -> bool:
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return False
    return True


def is_transient(problem: psycopg.Error) -> bool:
    """Whether the same call may succeed later without anybody correcting anything."""
    if problem.sqlstate is not None:
        return problem.sqlstate.startswith(_TRANSIENT)
    return _is_lost(problem) and not is_refused(problem)


def is_of_server(problem: psycopg.Error) -> bool:
    """Whether a privilege, a table, a column or a schema is missing."""
    return problem.sqlstate in (_NO_PRIVILEGE, *_SINK_IDS)


def is_refused(problem: psycopg.Error) -> bool:
    """Whether the server refused the connection, as for a wrong password."""
    return _is_lost(problem) and any(words in summary(problem) for words in _REFUSALS)


def _is_lost(problem: psycopg.Error) -> bool:
    # An InterfaceError is what a cursor raises whose connection has gone.
    return problem.sqlstate is None and isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)


def summary(problem: psycopg.Error) -> str:
    """What went wrong, on one line."""
    text = problem.diag.message_primary or str(problem).strip() or type(problem).__name__
    return " ".join(text.split())


def server_error(problem: psycopg.Error, place: str, side: Literal["SINK", "SOURCE"]) -> Exception:
    """``Unreachable`` for a transient error, else an error that says what to correct."""
    text, state = f"{place}: {summary(problem)}", problem.sqlstate or ""
    if is_transient(problem):
        return Unreachable(text)
    if state == _NO_PRIVILEGE or is_refused(problem):
        return HeadraceError(f"{side}_REFUSED", f"{text}. Check user, password, database and the user's privileges.")
    id = _SINK_IDS.get(state) if side == "SINK" else None
    return HeadraceError(id or f"{side}_FAILED", f"{text} (SQLSTATE {problem.sqlstate}).")


def startup_error(problem: BaseException, server: PostgresServer) -> BaseException:
    """The error of a source that is starting, which does not wait for its server."""
    error = server_error(problem, server.place, "SOURCE") if isinstance(problem, psycopg.Error) else problem
    if isinstance(error, Unreachable):
        return HeadraceError("SOURCE_UNREACHABLE", f"{error}. Start the server or correct dsn=...")
    return error
