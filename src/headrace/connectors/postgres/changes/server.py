"""A PostgreSQL server whose changes are read: how to reach it, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from headrace.connectors.postgres.connection import PostgresServer, is_refused, primary
from headrace.errors import HeadraceError

# Connection lost, resources short, transaction lost to another, server stopping: all pass by themselves.
_PASSING = ("08", "25P03", "40", "53200", "53300", "55006", "55P03", "57")
# How values are written as text depends on these, and the log must read the same whoever wrote it.
_SETTINGS = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "search_path": "pg_catalog",
    # Rows that a policy hides are an error, not a snapshot without them.
    "row_security": "off",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}


class Away(Exception):
    """The server does not answer now; it is tried again."""


class Server(PostgresServer):
    """A server that is followed."""

    __slots__ = ()

    def connect(self, session: str = "headrace", **settings: str) -> psycopg.Connection[Any]:
        """A new connection outside a transaction; ``session`` is its name among the server's sessions."""
        texts = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        options = " ".join(filter(None, (self.settings.get("options", ""), texts)))
        try:
            return super().connect(application_name=session, options=options, **settings)
        except psycopg.Error as problem:
            raise self.meaning(problem) from None

    @contextmanager
    def asked(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection for a few questions before the first batch."""
        try:
            with self.connect() as connection:
                yield connection
        except (psycopg.Error, Away) as problem:
            raise self.told(problem) from None

    def told(self, problem: BaseException) -> BaseException:
        """A problem as an author is told it who waits for the pipeline to start."""
        meaning = self.meaning(problem) if isinstance(problem, psycopg.Error) else problem
        if isinstance(meaning, Away):
            return HeadraceError("SOURCE_UNREACHABLE", f"{meaning}. Start the server or correct dsn=...")
        return meaning

    def meaning(self, problem: psycopg.Error) -> Exception:
        """``Away`` for what passes by itself, else an error that says what to mend."""
        state, said = problem.sqlstate, primary(problem)
        lost = state is None and isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)
        if lost and not is_refused(problem):
            return Away(f"PostgreSQL {self.address}: {said}")
        if state is not None and state.startswith(_PASSING):
            return Away(f"PostgreSQL {self.address}: {said}")
        if lost or state == "42501":
            return HeadraceError(
                "SOURCE_REFUSED",
                f"PostgreSQL {self.address}: {said}. Check user, password, database, and the user's rights.",
            )
        return HeadraceError("SOURCE_FAILED", f"PostgreSQL {self.address}: {said} (SQLSTATE {state}).")


def lsn_text(lsn: int) -> str:
    """A place in the server's log as it writes it itself.

    >>> lsn_text(0x16B374D848)
    '16/B374D848'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """The same as a number.

    >>> lsn_number("16/B374D848") == 0x16B374D848
    True
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)
