"""How a PostgreSQL server is named, shown and reached."""

from __future__ import annotations

import pickle
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from headrace.connectors.postgres.connection import PostgresServer, is_refused, is_transient, server_error, summary
from headrace.connectors.postgres.lookup import postgres_lookup
from headrace.errors import DefinitionError
from headrace.secrets import Secret


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The settings of each connection that is asked for; none is made."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(psycopg, "connect", lambda conninfo, **_: asked.append(conninfo_to_dict(conninfo)))
    return asked


def test_a_connection_string_that_is_none_is_refused_without_its_password() -> None:
    dsn = "host=db password='hunter2"
    with pytest.raises(DefinitionError, match=r"^\[DSN_INVALID\]") as raised:
        PostgresServer(dsn, None)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("password", "shown"),
    [(None, ""), ("hunter2", ", password='***'"), (Secret(env="PG"), ", password=hr.secret(env='PG')")],
)
def test_a_password_is_shown_as_where_it_is_found(password: str | Secret | None, shown: str) -> None:
    asked = postgres_lookup("host=db", "select", password=password)
    assert repr(asked) == f"hr.postgres_lookup('host=db', 'select'{shown})"


def test_what_the_connection_string_says_goes_before_what_is_usual(connections: list[dict[str, Any]]) -> None:
    PostgresServer("host=db connect_timeout=3", "hunter2").connect()
    assert connections == [
        {
            "host": "db",
            "connect_timeout": "3",
            "tcp_user_timeout": "30000",
            "keepalives_idle": "20",
            "keepalives_interval": "10",
            "keepalives_count": "3",
            "application_name": "headrace",
            "client_encoding": "UTF8",
            "password": "hunter2",
        }
    ]


def test_a_server_that_is_followed_has_sessions_of_a_name_and_writes_values_in_one_way(
    connections: list[dict[str, Any]],
) -> None:
    server = PostgresServer("host=db application_name=mine options='-c geqo=off'", None)
    server.connect_for_changes("headrace:1:shop", replication="database")
    assert connections[0]["application_name"] == "headrace:1:shop"
    assert connections[0]["replication"] == "database"
    assert connections[0]["options"].startswith("-c geqo=off -c client_encoding=UTF8 -c datestyle=ISO ")


def test_a_server_that_is_written_to_is_the_same_in_every_process() -> None:
    server = PostgresServer("host=db", Secret(env="PG"))
    assert pickle.loads(pickle.dumps(server)) == server
    assert hash(pickle.loads(pickle.dumps(server))) == hash(server)


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ('FATAL:  password authentication failed for user "ann"', True),
        ('FATAL:  role "ann" is not permitted to log in', True),
        ("connection timeout expired", False),
        ("connection failed: Connection refused", False),
        ("server closed the connection\n\tunexpectedly", False),
    ],
)
def test_a_server_that_refuses_is_told_from_one_that_is_away(said: str, refused: bool) -> None:
    assert is_refused(psycopg.OperationalError(said)) is refused


def test_an_error_is_told_in_one_line() -> None:
    assert summary(psycopg.OperationalError("server closed\n\tthe connection")) == "server closed the connection"
    assert summary(psycopg.OperationalError()) == "OperationalError"


@pytest.mark.parametrize(
    ("problem", "transient"),
    [
        (psycopg.errors.ConnectionFailure(), True),
        (psycopg.errors.ReadOnlySqlTransaction(), True),
        (psycopg.errors.IdleInTransactionSessionTimeout(), True),
        (psycopg.errors.SerializationFailure(), True),
        (psycopg.errors.DeadlockDetected(), True),
        (psycopg.errors.SyntaxError(), False),
        (psycopg.errors.DiskFull(), True),
        (psycopg.errors.TooManyConnections(), True),
        (psycopg.errors.ConfigurationLimitExceeded(), False),
        (psycopg.errors.ObjectInUse(), True),
        (psycopg.errors.LockNotAvailable(), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.UndefinedTable(), False),
        (psycopg.errors.InsufficientPrivilege(), False),
        (psycopg.InterfaceError("the cursor is closed"), True),
        (psycopg.OperationalError("connection refused"), True),
        (psycopg.OperationalError('FATAL:  password authentication failed for user "ann"'), False),
        (psycopg.ProgrammingError("the query has 2 placeholders but 1 parameters were passed"), False),
    ],
)
def test_an_error_is_transient_when_the_same_call_may_succeed_later(problem: psycopg.Error, transient: bool) -> None:
    assert is_transient(problem) is transient


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (psycopg.errors.ObjectInUse("slot is active"), "PostgreSQL db/shop: slot is active"),
        (psycopg.errors.InsufficientPrivilege("no"), "[SOURCE_REFUSED] PostgreSQL db/shop: no. Check user"),
        (psycopg.errors.UndefinedTable("gone"), "[SOURCE_FAILED] PostgreSQL db/shop: gone (SQLSTATE 42P01)."),
    ],
)
def test_a_source_waits_after_a_transient_error_and_names_any_other(problem: psycopg.Error, expected: str) -> None:
    assert str(server_error(problem, PostgresServer("host=db dbname=shop").place, "SOURCE")).startswith(expected)
