"""A query to PostgreSQL as a small table, over a connection that answers what the test says."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import polars as pl
import psycopg
import pytest

from headrace.connectors.postgres.connection import PostgresServer
from headrace.connectors.postgres.small_table import postgres_table
from headrace.errors import DefinitionError, HeadraceError
from headrace.schemas import MOMENT
from headrace.secrets import secret

SCHEMA = "id BIGINT, fee DECIMAL(10,2), since TIMESTAMP, open BOOLEAN"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Answering:
    """A connection and its cursor."""

    def __init__(self, names: str, rows: list[tuple[Any, ...]] | psycopg.Error) -> None:
        self.description = [SimpleNamespace(name=name) for name in names.split()]
        self._rows = rows
        self.asked: list[Any] = []

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def cursor(self) -> Answering:
        return self

    def execute(self, query: Any) -> Answering:
        self.asked.append(query)
        if isinstance(self._rows, psycopg.Error):
            raise self._rows
        return self

    def fetchall(self) -> Any:
        return self._rows


def read(monkeypatch: pytest.MonkeyPatch, answering: Answering) -> pl.DataFrame:
    monkeypatch.setattr(PostgresServer, "connect", lambda self: answering)
    return postgres_table("select * from t where x like '50%'", dsn="host=db dbname=shop", schema=SCHEMA).read()


def test_rows_come_in_the_declared_columns_and_types(monkeypatch: pytest.MonkeyPatch) -> None:
    answering = Answering("open id more fee since", [(True, 1, "x", Decimal("2.50"), NOON), (None, 2, "y", None, None)])
    rows = read(monkeypatch, answering)
    assert rows.rows() == [(1, Decimal("2.50"), NOON, True), (2, None, None, None)]
    assert rows.schema == {"id": pl.Int64(), "fee": pl.Decimal(10, 2), "since": MOMENT, "open": pl.Boolean()}
    assert answering.asked[-1] == b"select * from t where x like '50%'"


def test_no_rows_are_a_table_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read(monkeypatch, Answering("id fee since open", []))
    assert rows.height == 0
    assert rows.columns == ["id", "fee", "since", "open"]


@pytest.mark.parametrize(
    ("names", "rows", "error"),
    [
        ("id fee since", [], "TABLE_COLUMN_MISSING"),
        ("id fee since open", [("one", None, None, None)], "TABLE_TYPE"),
        ("id", psycopg.OperationalError("connection refused"), "TABLE_UNREADABLE"),
    ],
)
def test_what_does_not_fit_or_fails_is_told(monkeypatch: pytest.MonkeyPatch, names: str, rows: Any, error: str) -> None:
    with pytest.raises(HeadraceError, match=rf"\[{error}\] .*db/shop"):
        read(monkeypatch, Answering(names, rows))


def test_passwords_are_not_printed_and_a_bad_dsn_or_schema_is_refused() -> None:
    table = postgres_table("select 1 as id", dsn="host=db password=x", schema="id INT", password=secret(env="PG"))
    assert "password=x" not in repr(table)
    assert "secret" in repr(table)
    with pytest.raises(DefinitionError, match=r"\[DSN_INVALID\]"):
        postgres_table("select 1", dsn="nonsense", schema="id INT")
    with pytest.raises(DefinitionError):
        postgres_table("select 1", dsn="host=db", schema="id")
