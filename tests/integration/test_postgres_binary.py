"""The binary form of COPY puts the same into a real PostgreSQL as text does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import polars as pl
import psycopg
import pytest
from psycopg import sql

from headrace.connectors.postgres.row_writer import CopyTarget, RowWriter, takes_binary
from headrace.connectors.postgres.target_table import create_table, existing_columns, parse_table
from headrace.services.service import Service

ROWS = pl.DataFrame(
    {
        "flag": [True, False, None],
        "tiny": [-128, 127, None],
        "small": [-(2**15), 2**15 - 1, None],
        "medium": [-(2**31), 2**31 - 1, None],
        "large": [-(2**63), 2**63 - 1, None],
        "half": [0.5, float("-inf"), None],
        "ratio": [0.1, float("nan"), None],
        "text": ['ü "quoted"\\\n\t,\\. 😀', "", None],
        "data": [b"\x00\xff", b"", None],
        "day": [date(1, 1, 1), date(9999, 12, 31), None],
        "at": [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(9999, 12, 31, tzinfo=UTC), None],
        "local": [datetime(1, 1, 1), datetime(2000, 1, 1, 0, 0, 0, 1), None],
    },
    schema={
        "flag": pl.Boolean(),
        "tiny": pl.Int8(),
        "small": pl.Int16(),
        "medium": pl.Int32(),
        "large": pl.Int64(),
        "half": pl.Float32(),
        "ratio": pl.Float64(),
        "text": pl.String(),
        "data": pl.Binary(),
        "day": pl.Date(),
        "at": pl.Datetime("us", "UTC"),
        "local": pl.Datetime("us"),
    },
)


@pytest.fixture
def database(postgres: Service) -> Iterator[psycopg.Connection[Any]]:
    """A connection with a schema of its own."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("create schema forms; set search_path to forms")
        yield connection
        connection.execute("drop schema forms cascade")


def test_both_forms_put_the_same_into_a_table(database: psycopg.Connection[Any]) -> None:
    found = []
    for name, binary in (("as_text", False), ("as_binary", True)):
        create_table(database, parse_table(name), ROWS.schema, [])
        assert takes_binary(existing_columns(database, parse_table(name)) or {}, ROWS.schema)
        CopyTarget(sql.Identifier(name), (), binary).append(database, ROWS)
        rows = database.execute(sql.SQL("select r::text from {} r").format(sql.Identifier(name))).fetchall()
        found.append(rows)
    assert found[0] == found[1]
    assert len(found[0]) == ROWS.height


@pytest.mark.parametrize("microsecond", [-(2**63), -(2**63) + 1, -300_000_000_000_000_000])
def test_a_moment_that_postgresql_does_not_know_is_refused_and_not_changed(
    database: psycopg.Connection[Any], microsecond: int
) -> None:
    rows = pl.DataFrame({"at": [microsecond]}).cast(pl.Datetime("us", "UTC"))
    create_table(database, parse_table("moments"), rows.schema, [])
    with pytest.raises(psycopg.errors.DatetimeFieldOverflow):
        CopyTarget(sql.Identifier("moments"), (), True).append(database, rows)


def test_the_binary_form_too_leaves_out_only_the_rows_that_are_refused(database: psycopg.Connection[Any]) -> None:
    rows = pl.DataFrame({"text": ["a", "b\0", "c"]})
    create_table(database, parse_table("texts"), rows.schema, [])
    refused, _ = RowWriter(database, CopyTarget(sql.Identifier("texts"), (), True).append).write(rows)
    assert refused["reason"].to_list() == ["ROW_REFUSED"]
    assert database.execute("select text from texts").fetchall() == [("a",), ("c",)]


def test_a_column_that_text_fits_but_not_its_binary_form_is_written_as_text(database: psycopg.Connection[Any]) -> None:
    database.execute("create table odd (n numeric, u uuid)")
    existing = existing_columns(database, parse_table("odd")) or {}
    assert not takes_binary(existing, {"n": pl.Int64()})
    assert not takes_binary(existing, {"u": pl.String()})
    assert not takes_binary(existing, {"missing": pl.String()})
