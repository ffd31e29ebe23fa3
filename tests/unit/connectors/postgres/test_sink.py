"""A PostgreSQL sink without a server: names, types, what goes over the wire, what is shown."""

from __future__ import annotations

import csv
import io
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import polars as pl
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.base.sink import TaskSink, Unreachable
from headrace.connectors.postgres.connection import server_error
from headrace.connectors.postgres.row_writer import RowWriter, csv_parts
from headrace.connectors.postgres.sink import MarkTable, to_postgres
from headrace.connectors.postgres.target_table import (
    TableName,
    TargetColumn,
    check_columns,
    parse_table,
    sql_type,
    takes,
)
from headrace.errors import DefinitionError, HeadraceError
from headrace.secrets import secret
from tests.writers import Writer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spend", TableName(None, "spend")),
        ("Sales.Spend", TableName("Sales", "Spend")),
        ('"a.b"', TableName(None, "a.b")),
        ('"a.b"."c ""d"""', TableName("a.b", 'c "d"')),
        ("a table; drop", TableName(None, "a table; drop")),
    ],
)
def test_a_table_is_named_with_or_without_quotes(text: str, expected: TableName) -> None:
    assert parse_table(text) == expected


@pytest.mark.parametrize("text", ["", ".", "a.", ".b", "a.b.c", 'a"b', '"a', '""', "a\0b", "x" * 64, "s." + "ü" * 32])
def test_what_is_no_name_is_an_error(text: str) -> None:
    with pytest.raises(DefinitionError, match="TABLE_NAME"):
        parse_table(text)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"dsn": "host=db nonsense"}, "DSN_INVALID"),
        ({"dsn": "postgresql://ann:hunter2@[db"}, "DSN_INVALID"),
        ({"writers": 0}, "WRITERS_INVALID"),
        ({"guarantee": "maybe"}, "GUARANTEE_UNKNOWN"),
    ],
)
def test_a_definition_that_cannot_work_is_an_error(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(DefinitionError, match=expected) as caught:
        to_postgres("spend", **{"dsn": "host=db"} | options)
    assert "hunter2" not in str(caught.value).split(" (at ")[0]


def test_it_prints_the_code_that_makes_it_and_no_password() -> None:
    sink = to_postgres(
        "spend",
        dsn="host=db",
        password=secret(env="PW"),
        upsert_on=["account", "window"],
        create=False,
        writers=2,
        guarantee="at_least_once",
    )
    assert repr(sink) == (
        "hr.to_postgres('spend', dsn='host=db', password=hr.secret(env='PW'), upsert_on=['account', 'window'], "
        "create=False, writers=2, guarantee='at_least_once')"
    )
    for dsn in (
        "host=db password='hunter2 x'",
        "postgresql://a:hunter2@db/shop",
        "postgresql://db/shop?password=hunter2",
    ):
        plain = to_postgres("spend", dsn=dsn, password="hunter2")
        assert "hunter2" not in repr(plain) + plain.place + str(plain.server) + str(plain.marks)


def test_it_is_a_sink_that_travels_to_tasks() -> None:
    sink = to_postgres("spend", dsn="host=db", upsert_on="account")
    assert isinstance(sink, TaskSink)
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert (sink.guarantee, sink.partition_by, sink.place) == (
        "exactly_once",
        ("account",),
        "postgres table 'spend' at db",
    )


def test_the_name_of_a_session_is_short_plain_and_one_writers_own() -> None:
    targets = (TableName("sales", "spend"), TableName("sales", "other"), TableName(None, "spend"))
    names = {
        MarkTable(target, "").session(Writer(flow, number).name)
        for target in targets
        for flow in ("x" * 100, "x" * 101, "größe")
        for number in range(20)
    }
    assert len(names) == 180
    assert all(len(name) <= 63 and name.isascii() for name in names)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pl.Int8(), "smallint"),
        (pl.Int32(), "integer"),
        (pl.Decimal(38, 0), "numeric(38,0)"),
        (pl.Datetime("us"), "timestamp without time zone"),
        (pl.Datetime("us", "UTC"), "timestamp with time zone"),
        (pl.List(pl.List(pl.Binary())), "bytea[]"),
        (pl.List(pl.Decimal(10, 2)), "numeric(10,2)[]"),
    ],
)
def test_a_column_is_created_with_the_type_that_holds_ours(kind: pl.DataType, expected: str) -> None:
    assert sql_type(kind) == expected


def test_a_type_that_postgresql_does_not_have_is_told_with_the_way_to_convert_it() -> None:
    sink, tags = to_postgres("spend", dsn="host=db"), pl.List(pl.Struct({"a": pl.Int32()}))
    sink.check_columns({"n": pl.Int64(), "s": pl.Struct({"names": pl.List(pl.String())})})
    for column, kind in (("tags", tags), ("inside", pl.Struct({"tags": pl.List(tags)}))):
        with pytest.raises(HeadraceError) as raised:
            sink.check_columns({"n": pl.Int64(), column: kind})
        assert raised.value.id == "COLUMN_TYPE"
        assert "ARRAY<STRUCT<a: INT>>" in str(raised.value)
        assert f"frame.withColumn({column!r}, F.to_json({column!r}))" in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "there", "category", "expected"),
    [
        (pl.Int64(), "integer", "N", True),
        (pl.Int64(), "numeric", "N", True),
        (pl.Int64(), "double precision", "N", False),
        (pl.Int64(), "text", "S", False),
        (pl.Float64(), "real", "N", False),
        (pl.Float64(), "bigint", "N", False),
        (pl.Decimal(10, 2), "numeric", "N", True),
        (pl.Decimal(10, 2), "double precision", "N", False),
        (pl.String(), "character varying", "S", True),
        (pl.String(), "jsonb", "U", True),
        (pl.String(), "uuid", "U", True),
        (pl.String(), "bytea", "U", False),
        (pl.String(), "integer", "N", False),
        (pl.Binary(), "bytea", "U", True),
        (pl.Datetime("us", "UTC"), "timestamp without time zone", "D", False),
        (pl.Datetime("us"), "timestamp with time zone", "D", False),
        (pl.List(pl.Int64()), "bigint[]", "A", True),
        (pl.List(pl.String()), "uuid[]", "A", True),
        (pl.List(pl.Int64()), "text[]", "A", False),
        (pl.List(pl.Int64()), "bigint", "N", False),
    ],
)
def test_an_existing_column_takes_what_it_can_keep(
    kind: pl.DataType, there: str, category: str, expected: bool
) -> None:
    assert takes(TargetColumn(there, category, there, False), kind) is expected


def test_both_types_are_named_when_they_do_not_fit() -> None:
    there = {"n": TargetColumn("text", "S", "text", False)}
    with pytest.raises(HeadraceError, match=r"COLUMN_TYPE.*'n' is text, the rows have BIGINT.*bigint"):
        check_columns(there, {"n": pl.Int64()}, "table spend", upserts=False)


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1))
def test_any_text_is_one_quoted_field_and_null_is_nothing(texts: list[str | None]) -> None:
    rows = pl.DataFrame({"n": [7] * len(texts), "text": texts}, schema={"n": pl.Int64(), "text": pl.String()})
    wire = b"".join(csv_parts(rows)).decode()
    expected = "".join("7,\n" if text is None else f'7,"{text.replace(chr(34), chr(34) * 2)}"\n' for text in texts)
    assert wire == expected
    read = csv.reader(io.StringIO(wire, newline=""), strict=True)
    assert [row[1] for row in read] == [text or "" for text in texts]


def test_many_rows_go_in_parts() -> None:
    parts = list(csv_parts(pl.DataFrame({"n": range(120_000)})))
    assert len(parts) == 3
    assert b"".join(parts).count(b"\n") == 120_000


class _Refusal(psycopg.OperationalError):
    """As psycopg raises it when connecting fails: a sentence and no code."""


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (_Refusal('FATAL:  password authentication failed for user "ann"'), "SINK_REFUSED"),
        (_Refusal('FATAL:  database "shop" does not exist'), "SINK_REFUSED"),
        (_Refusal("FATAL:  the database system is starting up"), None),
        (_Refusal("connection refused"), None),
        (_Refusal("consuming input failed: SSL SYSCALL error: EOF detected"), None),
        (_Refusal("FATAL:  sorry, too many clients already"), None),
        (psycopg.errors.AdminShutdown("terminating connection"), None),
        (psycopg.errors.DeadlockDetected("deadlock detected"), None),
        (psycopg.errors.SerializationFailure("could not serialize"), None),
        (psycopg.errors.DiskFull("no space left"), None),
        (psycopg.errors.InsufficientPrivilege("permission denied"), "SINK_REFUSED"),
        (psycopg.errors.UndefinedTable("relation does not exist"), "TABLE_MISSING"),
        (psycopg.errors.SyntaxError("syntax error"), "SINK_FAILED"),
    ],
)
def test_what_passes_by_itself_is_waited_for_and_the_rest_is_an_error(
    problem: psycopg.Error, expected: str | None
) -> None:
    meant = server_error(problem, "table spend", "SINK")
    assert isinstance(meant, Unreachable if expected is None else HeadraceError)
    assert expected is None or expected in str(meant)


class _Connection:
    """A connection of which only the savepoints are asked for."""

    def transaction(self, *, force_rollback: bool) -> AbstractContextManager[bool]:
        return nullcontext(force_rollback)


def _put(
    problem: psycopg.Error, fails: Callable[[list[str]], bool], texts: list[str]
) -> tuple[list[str], pl.DataFrame]:
    """What a table that fails at some rows takes, in its order, and what is refused."""
    taken: list[str] = []

    def put(connection: Any, rows: pl.DataFrame) -> int:
        if fails(rows["text"].to_list()):
            raise problem
        taken.extend(rows["text"])
        return 0

    refused, _ = RowWriter(_Connection(), put).write(pl.DataFrame({"text": texts}))  # type: ignore[arg-type]
    return taken, refused


@pytest.mark.parametrize("problem", [psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex])
def test_a_row_that_is_too_much_for_an_index_or_the_parser_is_refused_alone(problem: type[psycopg.Error]) -> None:
    taken, refused = _put(problem("too much"), lambda texts: "long" in texts, ["a", "b", "long", "c", "d"])
    assert taken == ["a", "b", "c", "d"]
    assert refused["raw"].to_list() == [b'{"text":"long"}']


def test_rows_with_one_key_to_postgresql_are_put_one_after_the_other_and_none_is_refused() -> None:
    def twice(texts: list[str]) -> bool:
        return len({text.lower() for text in texts}) < len(texts)

    taken, refused = _put(psycopg.errors.CardinalityViolation("a second time"), twice, ["a", "b", "B", "A", "c"])
    assert taken == ["a", "b", "B", "A", "c"]
    assert refused.is_empty()
