"""Rows that a real PostgreSQL refuses or passes over: triggers, rules, policies; and errors that are not of rows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import polars as pl
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headrace.connectors.base.sink import Delivered, Unreachable
from headrace.connectors.postgres import row_writer
from headrace.connectors.postgres.sink import PostgresSink, to_postgres
from headrace.errors import HeadraceError
from headrace.services.service import Service
from tests.writers import Writer

_FLOWS = itertools.count()
ODD = 3
"""The row that triggers do not like."""


@pytest.fixture
def database(postgres: Service) -> Iterator[psycopg.Connection[Any]]:
    """A connection to look and to meddle with."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("create schema refusals create table spend (n bigint primary key, word text)")
        yield connection
        connection.execute("drop schema refusals cascade")


@pytest.fixture
def writer() -> Writer:
    """A writer of a flow of its own."""
    return Writer(f"refusing-{next(_FLOWS)}")


def _rows(*numbers: int) -> pl.DataFrame:
    return pl.DataFrame({"n": numbers, "word": [f"w{n}" for n in numbers]}, schema={"n": pl.Int64, "word": pl.String})


def _sink(postgres: Service, writer: Writer, upsert_on: str | None = None) -> PostgresSink:
    sink = to_postgres("refusals.spend", dsn=postgres.url, upsert_on=upsert_on)
    sink.prepare(_rows().schema, [writer.name], writer.epoch)
    return sink


def _trigger(database: psycopg.Connection[Any], body: str, when: str = "before insert", each: str = "row") -> None:
    """A trigger of the table; ``body`` is PL/pgSQL."""
    database.execute("create sequence if not exists refusals.calls")
    database.execute(f"create or replace function refusals.f() returns trigger language plpgsql as $$ {body} $$")
    database.execute(
        f"create or replace trigger t {when} on refusals.spend for each {each} execute function refusals.f()"
    )


def _numbers(database: psycopg.Connection[Any]) -> list[int]:
    return [n for (n,) in database.execute("select n from refusals.spend order by n")]


def _refused(delivered: Delivered) -> list[tuple[int, str]]:
    """Number and detail of the rows that become dead letters."""
    if delivered.refused is None:
        return []
    assert set(delivered.refused["reason"]) == {"ROW_REFUSED"}
    return [(json.loads(raw)["n"], detail) for _, detail, raw in delivered.refused.rows()]


FAILURES = {
    "a code of the author's": ("raise exception 'no thanks' using errcode = 'ZX001'", "no thanks (SQLSTATE ZX001)"),
    "an assertion": ("assert false, 'no thanks'", "no thanks (SQLSTATE P0004)"),
    "a privilege, as the trigger says": (
        "raise exception 'no thanks' using errcode = '42501'",
        "no thanks (SQLSTATE 42501)",
    ),
    "a function that there is not": (
        "perform nothing(new.n)",
        "function nothing(bigint) does not exist (SQLSTATE 42883)",
    ),
    "a table that there is not": ("perform 1 from nothing", 'relation "nothing" does not exist (SQLSTATE 42P01)'),
    "a conflict for ever": ("raise exception 'no thanks' using errcode = '40001'", "no thanks (SQLSTATE 40001)"),
    "a deadlock for ever": ("raise exception 'no thanks' using errcode = '40P01'", "no thanks (SQLSTATE 40P01)"),
    "a shutdown, as the trigger says": (
        "raise exception 'no thanks' using errcode = '57P01'",
        "no thanks (SQLSTATE 57P01)",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("upsert_on", [None, "n"])
def test_a_row_at_which_a_trigger_fails_is_refused_and_its_neighbours_are_written(
    postgres: Service,
    database: psycopg.Connection[Any],
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
    failure: str,
    upsert_on: str | None,
) -> None:
    monkeypatch.setattr(row_writer, "PAUSES", (0.0,))
    statement, detail = FAILURES[failure]
    _trigger(database, f"begin if new.n = {ODD} then {statement}; end if; return new; end")
    sink, part = _sink(postgres, writer, upsert_on), writer.batch(0, 0, None)
    first, again = sink.deliver(_rows(1, 2, 3, 4, 5), part), sink.deliver(_rows(1, 2, 3, 4, 5), part)
    assert (first.written, first.already_marked, _refused(first)) == (4, 0, [(ODD, detail)])
    assert (again.written, again.already_marked, _refused(again)) == (0, 4, [(ODD, detail)])
    assert _numbers(database) == [1, 2, 4, 5]


@pytest.mark.parametrize("failure", sorted(FAILURES.keys() - {"a table that there is not"}))
def test_a_row_at_which_a_trigger_fails_is_refused_though_it_comes_alone(
    postgres: Service,
    database: psycopg.Connection[Any],
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
    failure: str,
) -> None:
    monkeypatch.setattr(row_writer, "PAUSES", (0.0,))
    statement, detail = FAILURES[failure]
    _trigger(database, f"begin {statement}; end")
    delivered = _sink(postgres, writer).deliver(_rows(ODD), writer.batch(0, 0, None))
    assert (delivered.written, _refused(delivered)) == (0, [(ODD, detail)])


def test_a_delete_at_which_a_trigger_fails_is_refused_and_the_others_are_done(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("insert into refusals.spend values (1), (3), (5)")
    _trigger(database, f"begin if old.n = {ODD} then perform nothing(); end if; return old; end", "before delete")
    rows = _rows(1, 3, 5).with_columns(change=pl.lit("delete"))
    delivered = _sink(postgres, writer, "n").deliver(rows, writer.batch(0, 0, None, changelog=True))
    assert (delivered.written, [n for n, _ in _refused(delivered)]) == (2, [ODD])
    assert _numbers(database) == [ODD]


def test_a_row_that_a_policy_forbids_is_refused(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("drop role if exists tenant")
    database.execute("create role tenant login password 'tenant'; grant all on schema refusals to tenant")
    database.execute("alter table refusals.spend owner to tenant")
    database.execute("alter table refusals.spend enable row level security, force row level security")
    database.execute(f"create policy p on refusals.spend using (true) with check (n <> {ODD})")
    sink = to_postgres(
        "refusals.spend", dsn=make_conninfo(postgres.dsn, user="tenant", password="tenant"), upsert_on="n"
    )
    sink.prepare(_rows().schema, [writer.name], writer.epoch)
    some = sink.deliver(_rows(1, ODD), writer.batch(0, 0, None))
    alone = sink.deliver(_rows(ODD), writer.batch(0, 1, 0))
    assert (some.written, alone.written) == (1, 0)
    for delivered in (some, alone):
        assert [n for n, _ in _refused(delivered)] == [ODD]


def test_a_conflict_that_passes_is_tried_again_and_refuses_nothing(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writer, "PAUSES", (0.0, 0.0))
    retry = "if nextval('refusals.calls') < 3 then raise exception 'again' using errcode = '40001'; end if"
    _trigger(database, f"begin {retry}; return new; end")
    assert _sink(postgres, writer).deliver(_rows(1), writer.batch(0, 0, None)) == Delivered(1)


MANY = range(row_writer.TRIED + 1)


@pytest.mark.parametrize(
    ("statement", "numbers", "problem", "said"),
    [
        ("perform nothing(new.n)", MANY, HeadraceError, r"SINK_FAILED.*function nothing\(bigint\) does not exist"),
        ("perform 1 from nothing", range(1), HeadraceError, 'TABLE_MISSING.*relation "nothing" does not exist'),
        ("raise exception 'busy' using errcode = '40001'", MANY, Unreachable, "busy"),
    ],
)
def test_an_error_of_a_trigger_at_every_row_of_many_is_none_of_the_rows(
    postgres: Service,
    database: psycopg.Connection[Any],
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    numbers: range,
    problem: type[Exception],
    said: str,
) -> None:
    monkeypatch.setattr(row_writer, "PAUSES", (0.0,))
    _trigger(database, f"begin {statement}; return new; end")
    sink, part = _sink(postgres, writer), writer.batch(0, 0, None)
    with pytest.raises(problem, match=said):
        sink.deliver(_rows(*numbers), part)
    # Rows that the table takes show that the others are at fault.
    _trigger(database, f"begin if new.n < 1000 then {statement}; end if; return new; end")
    good = range(1000, 1000 + len(numbers))
    delivered = sink.deliver(_rows(*numbers, *good), part)
    assert delivered.written == len(good)
    assert [n for n, _ in _refused(delivered)] == list(numbers)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("drop table refusals.spend", "TABLE_MISSING"),
        ("alter table refusals.spend drop column word", "COLUMN_MISSING.*word"),
        ("alter table refusals.spend drop constraint spend_pkey", "SINK_FAILED.*SQLSTATE 42P10"),
        (
            "create function refusals.g() returns trigger language plpgsql as $$ begin raise 'closed'; end $$; "
            "create trigger g before insert on refusals.spend for each statement execute function refusals.g()",
            "SINK_FAILED.*closed",
        ),
    ],
)
def test_an_error_that_comes_without_rows_too_ends_the_flow_and_makes_no_dead_letters(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer, change: str, said: str
) -> None:
    sink = _sink(postgres, writer, "n")
    database.execute(change)
    with pytest.raises(HeadraceError, match=said):
        sink.deliver(_rows(1, 2), writer.batch(0, 0, None))


def test_a_privilege_that_is_withdrawn_ends_the_flow_and_makes_no_dead_letters(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("drop role if exists clerk")
    database.execute("create role clerk login password 'clerk'; grant all on schema refusals to clerk")
    database.execute("grant insert, select on refusals.spend to clerk")
    sink = to_postgres("refusals.spend", dsn=make_conninfo(postgres.dsn, user="clerk", password="clerk"))
    sink.prepare(_rows().schema, [writer.name], writer.epoch)
    database.execute("revoke insert on refusals.spend from clerk")
    with pytest.raises(HeadraceError, match=r"SINK_REFUSED.*permission denied for table spend"):
        sink.deliver(_rows(1, 2), writer.batch(0, 0, None))


def test_a_row_that_a_trigger_skips_is_counted_each_time(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    _trigger(database, f"begin if new.n = {ODD} then return null; end if; return new; end")
    sink, part = _sink(postgres, writer), writer.batch(0, 0, None)
    assert sink.deliver(_rows(1, 2, 3, 4), part) == Delivered(3, skipped=1)
    assert sink.deliver(_rows(1, 2, 3, 4), part) == Delivered(0, already_marked=3, skipped=1)
    assert _numbers(database) == [1, 2, 4]


def test_an_update_that_a_trigger_skips_is_counted(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("insert into refusals.spend values (1, 'w1'), (2, 'old')")
    database.execute(
        "create trigger same before update on refusals.spend for each row "
        "execute function suppress_redundant_updates_trigger()"
    )
    sink = _sink(postgres, writer, "n")
    assert sink.deliver(_rows(1, 2, 3), writer.batch(0, 0, None)) == Delivered(2, skipped=1)
    assert database.execute("select word from refusals.spend order by n").fetchall() == [("w1",), ("w2",), ("w3",)]


@pytest.mark.parametrize("by", ["trigger", "rule"])
def test_a_delete_that_is_skipped_is_counted_and_one_of_a_key_that_is_not_there_is_done(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer, by: str
) -> None:
    database.execute("insert into refusals.spend values (1), (3)")
    if by == "trigger":
        _trigger(database, f"begin if old.n = {ODD} then return null; end if; return old; end", "before delete")
    else:
        database.execute(f"create rule r as on delete to refusals.spend where old.n = {ODD} do instead nothing")
    rows = _rows(1, ODD, 7).with_columns(change=pl.lit("delete"))
    delivered = _sink(postgres, writer, "n").deliver(rows, writer.batch(0, 0, None, changelog=True))
    assert delivered == Delivered(2, skipped=1)
    assert _numbers(database) == [ODD]


def test_a_row_of_nothing_but_keys_that_is_there_is_written_and_one_that_a_trigger_skips_is_not(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("insert into refusals.spend values (1)")
    _trigger(database, f"begin if new.n = {ODD} then return null; end if; return new; end")
    delivered = _sink(postgres, writer, "n").deliver(_rows(1, 2, ODD).select("n"), writer.batch(0, 0, None))
    assert delivered == Delivered(2, skipped=1)


@pytest.mark.parametrize("upsert_on", [None, "n"])
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("view refusals.other as select * from refusals.spend", "NOT_A_TABLE.*is a view"),
        ("sequence refusals.other", "NOT_A_TABLE"),
        ("materialized view refusals.other as select * from refusals.spend", "NOT_A_TABLE"),
        (
            "table refusals.other (n bigint primary key, word text generated always as ('w' || n) stored)",
            "COLUMN_GENERATED.*'word'",
        ),
    ],
)
def test_a_target_that_takes_no_such_rows_is_an_error_before_the_first_batch(
    postgres: Service,
    database: psycopg.Connection[Any],
    writer: Writer,
    target: str,
    said: str,
    upsert_on: str | None,
) -> None:
    database.execute(f"create {target}")
    sink = to_postgres("refusals.other", dsn=postgres.url, upsert_on=upsert_on)
    with pytest.raises(HeadraceError, match=said):
        sink.prepare(_rows().schema, [writer.name], writer.epoch)


def test_what_only_upserts_cannot_write_is_an_error_of_theirs_alone(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("create table refusals.other (n bigint generated always as identity primary key, word text)")
    database.execute("create table refusals.ruled (like refusals.spend including all)")
    database.execute("create rule r as on insert to refusals.ruled do instead nothing")
    for table, said in (("other", "COLUMN_GENERATED.*'n'"), ("ruled", "TABLE_HAS_RULES")):
        sink = to_postgres(f"refusals.{table}", dsn=postgres.url, upsert_on="n")
        with pytest.raises(HeadraceError, match=said):
            sink.prepare(_rows().schema, [writer.name], writer.epoch)
        sink = to_postgres(f"refusals.{table}", dsn=postgres.url)
        sink.prepare(_rows().schema, [writer.name], writer.epoch)
        # COPY knows no rules, and gives identity columns their values.
        assert sink.deliver(_rows(7), writer.batch(0, 0, None)) == Delivered(1)
        assert database.execute(f"select n from refusals.{table}").fetchall() == [(7,)]


def test_a_column_named_change_is_one_as_any_other_unless_the_rows_are_a_changelog(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("alter table refusals.spend add column change text")
    rows = _rows(1, 2).with_columns(change=pl.Series(["delete", None]))
    sink = to_postgres("refusals.spend", dsn=postgres.url, upsert_on="n")
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    assert sink.deliver(rows, writer.batch(0, 0, None)) == Delivered(2)
    assert database.execute("select n, change from refusals.spend order by 1").fetchall() == [(1, "delete"), (2, None)]
