"""Where a PostgreSQL server is, how it is reached, and what it says when it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.errors import DefinitionError
from headrace.secrets import HIDDEN, Secret, revealed

_USUAL: dict[str, Any] = {
    "application_name": "headrace",
    "connect_timeout": 10,
    # A server that is cut off without a word is noticed within a minute, while sending and while waiting for an answer.
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
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
class PostgresServer:
    """A server as a keyword string or ``postgresql://`` URL names it, and the password for it.

    >>> server = PostgresServer("postgresql://ann:hunter2@db:5433/shop")
    >>> server.shown, server.address
    ('user=ann password=*** dbname=shop host=db port=5433', 'db:5433/shop')
    """

    dsn: str
    password: str | Secret | None = None

    def __post_init__(self) -> None:
        try:
            conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            # The parser's own sentence may quote a part of the password.
            raise DefinitionError(
                "DSN_INVALID",
                "dsn= is neither keywords like 'host=db dbname=shop user=ann' nor a URL like "
                "'postgresql://ann@db:5432/shop'. Mend it; give the password apart, as password=hr.secret(...).",
            ) from None

    @property
    def settings(self) -> dict[str, Any]:
        """What the connection string says."""
        return {name: value for name, value in conninfo_to_dict(self.dsn).items() if value is not None}

    @property
    def shown(self) -> str:
        """The connection string for people, without passwords."""
        settings = self.settings
        if not any("password" in name for name in settings):
            return self.dsn
        return make_conninfo("", **{name: HIDDEN if "password" in name else value for name, value in settings.items()})

    @property
    def shown_password(self) -> str:
        """The argument ``password`` for people, with a comma before it; nothing where none is given."""
        password = HIDDEN if isinstance(self.password, str) else self.password
        return "" if password is None else f", password={password!r}"

    @property
    def address(self) -> str:
        """Host, port and database, as far as the connection string names them."""
        settings = self.settings
        host = ":".join(str(settings[name]) for name in ("host", "port") if name in settings)
        return "/".join(part for part in (host or "localhost", str(settings.get("dbname", ""))) if part)

    def connect(self, **settings: str) -> psycopg.Connection[Any]:
        """A new connection, outside a transaction; ``settings`` go before those of the connection string."""
        return psycopg.connect(self._conninfo(settings), autocommit=True, prepare_threshold=None)

    async def connect_async(self) -> psycopg.AsyncConnection[Any]:
        """The same for an event loop."""
        return await psycopg.AsyncConnection.connect(self._conninfo({}), autocommit=True, prepare_threshold=None)

    def _conninfo(self, settings: dict[str, str]) -> str:
        given = self.settings
        if self.password is not None:
            given["password"] = revealed(self.password)
        return make_conninfo("", **(_USUAL | given | {"client_encoding": "UTF8"} | settings))


def is_refused(problem: psycopg.Error) -> bool:
    """Whether an error at connecting says that it will not do as long as nothing is mended.

    >>> is_refused(psycopg.OperationalError('FATAL:  role "ann" is not permitted to log in'))
    True
    >>> is_refused(psycopg.OperationalError("connection timeout expired"))
    False
    """
    return problem.sqlstate is None and any(words in primary(problem) for words in _REFUSALS)


def primary(problem: psycopg.Error) -> str:
    """The error in one line."""
    text = problem.diag.message_primary or str(problem).strip() or type(problem).__name__
    return " ".join(text.split())
