"""Rows in a real PostgreSQL: types, upserts, marks, fencing, lost answers, refused rows."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

import polars as pl
import psycopg
import pytest
from polars.testing import assert_frame_equal
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.base.sink import Delivered, Unreachable, WriterBatch
from headrace.connectors.postgres.sink import PostgresSink, to_postgres
from headrace.connectors.servers import running
from headrace.errors import HeadraceError
from headrace.observe.committed import committed_rows
from headrace.services.service import Service
from tests.writers import Writer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_FLOWS = itertools.count()


class Proxy(Protocol):
    """As ``cutting_proxy`` makes them."""

    port: int
    cuts: int

    def cut_at(self, words: bytes, *, forward: bool) -> None:
        """Cut the connection at the next occurrence of some words from the client."""


@pytest.fixture
def database(postgres: Service) -> Iterator[psycopg.Connection[Any]]:
    """A connection to look and to meddle with."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("create schema if not exists sinks")
        yield connection
        connection.execute("drop schema sinks cascade")


@pytest.fixture
def writer() -> Writer:
    """A writer of a flow of its own."""
    return Writer(f"flow-{next(_FLOWS)}")


def _deliver(sink: PostgresSink, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
    for _ in range(100):
        try:
            delivered = sink.deliver(rows, part)
        except Unreachable:
            time.sleep(0.05)
        else:
            refused = 0 if delivered.refused is None else delivered.refused.height
            assert rows.height == delivered.written + delivered.superseded + delivered.already_marked + refused
            return delivered
    raise AssertionError("unreachable a hundred times")


def _all(database: psycopg.Connection[Any], query: str) -> list[tuple[Any, ...]]:
    return database.execute(query).fetchall()


def test_every_type_comes_back_as_it_went_in(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    full = {
        "flag": True,
        "small": -128,
        "medium": 2**31 - 1,
        "large": -(2**63),
        "ratio": 0.1,
        "text": 'ü "quoted", back\\slash\nnew line\r\n\t\\. 😀',
        "data": b"\x00\xff\\x",
        "day": date(1969, 12, 31),
        "at": datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC),
        "local": datetime(1900, 1, 1, 0, 0, 0, 1),
        "lasted": timedelta(days=-3, microseconds=5),
        "price": Decimal("12345678901234567890.0001"),
        "tags": ["a", None, "", 'q"\\,{}', "NULL", "ü"],
        "numbers": [1, None, 3],
        "window": {"start": NOON, "end": NOON + timedelta(hours=1)},
    }
    schema = {
        "flag": pl.Boolean(),
        "small": pl.Int8(),
        "medium": pl.Int32(),
        "large": pl.Int64(),
        "ratio": pl.Float64(),
        "text": pl.String(),
        "data": pl.Binary(),
        "day": pl.Date(),
        "at": pl.Datetime("us", "UTC"),
        "local": pl.Datetime("us"),
        "lasted": pl.Duration("us"),
        "price": pl.Decimal(38, 4),
        "tags": pl.List(pl.String()),
        "numbers": pl.List(pl.Int64()),
        "window": pl.Struct({"start": pl.Datetime("us", "UTC"), "end": pl.Datetime("us", "UTC")}),
    }
    odd = {"text": "", "data": b"", "ratio": float("nan"), "tags": [], "numbers": [], "price": Decimal("-0.0001")}
    wide = {"ratio": float("-inf"), "text": "\\.", "small": 127, "tags": [None]}
    rows = pl.DataFrame([full, odd, wide, dict.fromkeys(full)], schema=schema)
    sink = to_postgres("sinks.types", dsn=postgres.url)
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    assert _deliver(sink, rows, writer.batch(0, 0, None)) == Delivered(4)
    found = database.execute("select * from sinks.types").fetchall()
    columns = [column.name for column in database.execute("select * from sinks.types").description or ()]
    back = [dict(zip(columns, row, strict=True)) for row in found]
    start, end = full.pop("window").values()  # type: ignore[attr-defined]
    assert back[0] == full | {"window_start": start, "window_end": end}
    assert {name: back[1][name] for name in odd if name != "ratio"} == {k: v for k, v in odd.items() if k != "ratio"}
    assert str(back[1]["ratio"]) == "nan"
    assert {name: back[2][name] for name in wide} == wide
    assert set(back[3].values()) == {None}


def test_an_upsert_replaces_and_a_delete_takes_out(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    sink = to_postgres("sinks.spend", dsn=postgres.url, upsert_on=["account", "window"])
    window = {"start": NOON, "end": NOON + timedelta(hours=1)}

    def changes(*rows: tuple[str | None, int, str]) -> pl.DataFrame:
        return pl.DataFrame([{"account": a, "window": window, "spent": n, "change": c} for a, n, c in rows])

    first = changes(("a", 1, "insert"), ("b", 2, "insert"), ("a", 3, "update_after"), ("c", 4, "insert"))
    sink.prepare(first.drop("change").schema, [writer.name], writer.epoch)
    assert _deliver(sink, first, writer.batch(0, 0, None, changelog=True)) == Delivered(3, superseded=1)
    second = changes(("a", 3, "update_before"), ("a", 5, "update_after"), ("b", 2, "delete"), (None, 7, "insert"))
    delivered = _deliver(sink, second, writer.batch(0, 1, 0, changelog=True))
    assert (delivered.written, delivered.superseded) == (2, 1)
    assert delivered.refused is not None
    assert delivered.refused["reason"].to_list() == ["KEY_NULL"]
    assert _all(database, "select account, window_start, spent from sinks.spend order by 1") == [
        ("a", NOON, 5),
        ("c", NOON, 4),
    ]


def test_a_part_that_is_marked_is_not_written_again(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    sink, rows = to_postgres("sinks.once", dsn=postgres.url), pl.DataFrame({"n": [1, 2, 3]})
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    assert _deliver(sink, rows, writer.batch(0, 4, None)) == Delivered(3)
    assert _deliver(sink, rows, writer.batch(0, 4, None)) == Delivered(0, already_marked=3)
    assert _deliver(sink, rows, writer.batch(0, 9, 4)) == Delivered(3)
    assert _all(database, "select count(*) from sinks.once") == [(6,)]


def test_of_two_copies_of_a_checkpoint_only_one_can_write(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    sink, rows = to_postgres("sinks.copies", dsn=postgres.url), pl.DataFrame({"n": [1, 2, 3]})
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    assert _deliver(sink, rows, writer.batch(0, 4, None, token="one")) == Delivered(3)
    with pytest.raises(HeadraceError, match="CHECKPOINT_FORKED"):
        sink.deliver(rows, writer.batch(0, 4, None, token="other"))
    assert _deliver(sink, rows, writer.batch(0, 4, None, token="one")) == Delivered(0, already_marked=3)
    assert _all(database, "select count(*) from sinks.copies") == [(3,)]


def test_an_older_epoch_is_fenced_and_a_new_generation_begins_at_batch_0(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    sink, rows = to_postgres("sinks.epochs", dsn=postgres.url), pl.DataFrame({"n": [1]})
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    _deliver(sink, rows, writer.batch(0, 7, None))
    successor = replace(writer, epoch=2)
    sink.prepare(rows.schema, [successor.name], successor.epoch)
    with pytest.raises(HeadraceError, match="FENCED"):
        sink.deliver(rows, writer.batch(0, 8, 7))
    with pytest.raises(HeadraceError, match="FENCED"):
        sink.prepare(rows.schema, [writer.name], writer.epoch)
    assert _deliver(sink, rows, successor.batch(0, 7, None)) == Delivered(0, already_marked=1)
    assert _deliver(sink, rows, successor.batch(1, 0, None)) == Delivered(1)
    with pytest.raises(HeadraceError, match="GENERATION_OLD"):
        sink.deliver(rows, successor.batch(0, 8, 7))
    assert _all(database, "select count(*) from sinks.epochs") == [(2,)]


def test_a_mark_that_is_gone_or_another_is_an_error(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    sink, rows = to_postgres("sinks.lost", dsn=postgres.url), pl.DataFrame({"n": [1]})
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    _deliver(sink, rows, writer.batch(0, 0, None))
    with pytest.raises(HeadraceError, match="MARK_LOST"):
        sink.deliver(rows, writer.batch(0, 5, 4))
    database.execute("delete from sinks.headrace_marks")
    with pytest.raises(HeadraceError, match="MARK_LOST"):
        sink.deliver(rows, writer.batch(0, 1, 0))
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    with pytest.raises(HeadraceError, match="MARK_LOST"):
        sink.deliver(rows, writer.batch(0, 1, 0))
    assert _all(database, "select count(*) from sinks.lost") == [(1,)]


def test_two_tables_of_one_output_have_marks_of_their_own(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    rows = pl.DataFrame({"n": [1]})
    for table in ("sinks.one", "sinks.other"):
        sink = to_postgres(table, dsn=postgres.url)
        sink.prepare(rows.schema, [writer.name], writer.epoch)
        assert _deliver(sink, rows, writer.batch(0, 0, None)) == Delivered(1)
    assert _all(database, "select target, batch from sinks.headrace_marks order by 1") == [("one", 0), ("other", 0)]


def test_a_backend_killed_in_the_middle_of_a_transaction_loses_and_doubles_nothing(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    sink, rows = to_postgres("sinks.killed", dsn=postgres.url), pl.DataFrame({"n": list(range(1000))})
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    database.execute("create sequence sinks.kills")
    database.execute(
        """
        create function sinks.kill() returns trigger language plpgsql as $$ begin
          if nextval('sinks.kills') <= 3 then perform pg_terminate_backend(pg_backend_pid()); end if;
          return null; end $$
        """
    )
    database.execute(
        "create trigger kill after insert on sinks.killed for each statement execute function sinks.kill()"
    )
    with pytest.raises(Unreachable, match="terminating"):
        sink.deliver(rows, writer.batch(0, 0, None))
    assert _deliver(sink, rows, writer.batch(0, 0, None)) == Delivered(1000)
    assert _all(database, "select count(*), count(distinct n) from sinks.killed") == [(1000, 1000)]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_commit_whose_answer_is_lost_is_resolved_20_times_of_20_whether_it_arrived_or_not(
    postgres: Service,
    database: psycopg.Connection[Any],
    writer: Writer,
    cutting_proxy: Callable[[int], Proxy],
    arrives: bool,
) -> None:
    proxy = cutting_proxy(int(str(conninfo_to_dict(postgres.dsn)["port"])))
    sink = to_postgres("sinks.cut", dsn=make_conninfo(postgres.dsn, port=proxy.port))
    rows = pl.DataFrame({"n": list(range(50))})
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    for batch in range(20):
        part = writer.batch(0, batch, batch - 1 if batch > 0 else None)
        proxy.cut_at(b"COMMIT", forward=arrives)
        with pytest.raises(Unreachable):
            sink.deliver(rows, part)
        expected = Delivered(0, already_marked=50) if arrives else Delivered(50)
        assert _deliver(sink, rows, part) == expected
    assert proxy.cuts == 20
    assert _all(database, "select n, count(*) from sinks.cut group by n having count(*) <> 20") == []


def test_a_frozen_predecessor_is_ended_before_the_claim_and_before_a_share(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    sink, rows = to_postgres("sinks.frozen", dsn=postgres.url), pl.DataFrame({"n": [1]})
    sink.prepare(rows.schema, [writer.name], writer.epoch)

    def freeze() -> psycopg.Connection[Any]:
        frozen = psycopg.connect(postgres.dsn, application_name=sink.marks.session(writer.name))
        frozen.execute("select * from sinks.headrace_marks where writer = %s for update", [writer.name])
        frozen.execute("insert into sinks.frozen values (99)")
        return frozen

    for _ in range(2):
        frozen = freeze()
        began = time.monotonic()
        sink.prepare(rows.schema, [writer.name], 2)
        assert time.monotonic() - began < 30
        with pytest.raises(psycopg.OperationalError):
            frozen.commit()
    frozen = freeze()
    assert _deliver(sink, rows, replace(writer, epoch=2).batch(0, 0, None)) == Delivered(1)
    with pytest.raises(psycopg.OperationalError):
        frozen.commit()
    assert _all(database, "select n from sinks.frozen") == [(1,)]


def test_a_zombie_does_not_end_its_successors_session(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    sink, rows = to_postgres("sinks.zombie", dsn=postgres.url), pl.DataFrame({"n": [1]})
    successor = replace(writer, epoch=2)
    sink.prepare(rows.schema, [successor.name], successor.epoch)
    with psycopg.connect(postgres.dsn, application_name=sink.marks.session(successor.name)) as writing:
        writing.execute("select * from sinks.headrace_marks where writer = %s for update", [writer.name])
        for attempt in (
            lambda: sink.deliver(rows, writer.batch(0, 0, None)),
            lambda: sink.prepare(rows.schema, [writer.name], writer.epoch),
        ):
            with pytest.raises(HeadraceError, match="FENCED"):
                attempt()
        assert writing.execute("select 1").fetchone() == (1,)


def test_a_server_that_was_killed_is_waited_for_and_holds_every_row_once(writer: Writer) -> None:
    with running("postgres") as server:
        sink, rows = to_postgres("killed", dsn=server.url), pl.DataFrame({"n": list(range(100))})
        sink.prepare(rows.schema, [writer.name], writer.epoch)
        for batch in range(3):
            part = writer.batch(0, batch, batch - 1 if batch > 0 else None)
            _deliver(sink, rows, part)
            server.kill()
            with pytest.raises(Unreachable):
                sink.deliver(rows, part)
            server.start()
            assert _deliver(sink, rows, part) == Delivered(0, already_marked=100)
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("select count(*), count(distinct n) from killed").fetchone() == (300, 100)
        sink.server.drop_pooled()


def test_names_are_never_read_as_sql(postgres: Service, database: psycopg.Connection[Any], writer: Writer) -> None:
    evil = 'n"; drop table sinks.victim; --'
    database.execute("create table sinks.victim (n int)")
    table = 'sinks."t"".x; drop table sinks.victim; --"'
    rows = pl.DataFrame({evil: [1, 1, 2], "Größe {} %s": ["'); drop table sinks.victim; --", None, "x"]})
    sink = to_postgres(table, dsn=postgres.url, upsert_on=[evil])
    flow = replace(writer, flow="'; drop table sinks.victim; --")
    sink.prepare(rows.schema, [flow.name], flow.epoch)
    assert _deliver(sink, rows, flow.batch(0, 0, None)) == Delivered(2, superseded=1)
    assert _all(database, 'select * from sinks."t"".x; drop table sinks.victim; --" order by 1') == [
        (1, None),
        (2, "x"),
    ]
    assert _all(database, "select * from sinks.victim") == []


@pytest.mark.parametrize("upsert_on", [None, "n"])
def test_rows_that_the_table_refuses_are_found_and_found_again(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer, upsert_on: str | None
) -> None:
    database.execute(
        "create table sinks.strict (n integer primary key, word varchar(5) not null, "
        "price numeric(4, 2) check (price > 0), parent integer unique deferrable initially deferred)"
    )
    rows = pl.DataFrame(
        {
            "n": [1, 2, 3, 4, 2**40, 6, 7, 8],
            "word": ["ok", "too long", None, "ok", "ok", "nul\0", "ok", "ok"],
            "price": [1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1000.0, 2.5],
            "parent": [1, 2, 3, 4, 5, 6, 7, 1],
        }
    )
    sink = to_postgres("sinks.strict", dsn=postgres.url, upsert_on=upsert_on)
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    part = writer.batch(0, 0, None)
    delivered = _deliver(sink, rows, part)
    assert delivered.written == 1
    assert delivered.refused is not None
    assert set(delivered.refused["reason"]) == {"ROW_REFUSED"}
    assert [json.loads(raw)["n"] for raw in delivered.refused["raw"]] == [2, 3, 4, 2**40, 6, 7, 8]
    assert "varying(5)" in delivered.refused["detail"][0]
    again = _deliver(sink, rows, part)
    assert (again.written, again.already_marked) == (0, 1)
    assert again.refused is not None
    assert_frame_equal(again.refused, delivered.refused)
    assert _all(database, "select n, parent from sinks.strict") == [(1, 1)]


def test_a_row_that_is_too_long_for_an_index_or_too_deep_for_the_parser_is_refused(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("create table sinks.limited (word text primary key, doc jsonb)")
    long = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(500))
    rows = pl.DataFrame({"word": ["a", "b", long, "d", "e"], "doc": ["1", "2", "3", "[" * 100_000, "5"]})
    sink = to_postgres("sinks.limited", dsn=postgres.url, upsert_on="word")
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    delivered = _deliver(sink, rows, writer.batch(0, 0, None))
    assert delivered.refused is not None
    assert [json.loads(raw)["word"] for raw in delivered.refused["raw"]] == [long, "d"]
    assert "54000" in delivered.refused["detail"][0]
    assert "54001" in delivered.refused["detail"][1]
    assert _all(database, "select word from sinks.limited order by 1") == [("a",), ("b",), ("e",)]


def test_of_rows_that_have_one_key_only_to_postgresql_the_last_stays(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("create table sinks.rounded (price numeric(10, 2) primary key, n bigint)")
    prices = [Decimal("1.004"), Decimal("2.000"), Decimal("1.001"), Decimal("3.000"), Decimal("1.003")]
    rows = pl.DataFrame({"price": prices, "n": range(5)}, schema_overrides={"price": pl.Decimal(12, 3)})
    sink = to_postgres("sinks.rounded", dsn=postgres.url, upsert_on="price")
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    assert _deliver(sink, rows, writer.batch(0, 0, None)) == Delivered(5)
    assert _all(database, "select price::text, n from sinks.rounded order by 1") == [
        ("1.00", 4),
        ("2.00", 1),
        ("3.00", 3),
    ]


def test_text_goes_into_columns_that_are_made_from_text(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("create type sinks.mood as enum ('glad')")
    database.execute("create domain sinks.short as varchar(3)")
    database.execute("create table sinks.made (id uuid, doc jsonb, mood sinks.mood, short sinks.short, n numeric)")
    identity = "00000000-0000-0000-0000-000000000001"
    rows = pl.DataFrame({"id": [identity], "doc": ['{"a": 1}'], "mood": ["glad"], "short": ["abc"], "n": [5]})
    sink = to_postgres("sinks.made", dsn=postgres.url)
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    assert _deliver(sink, rows, writer.batch(0, 0, None)) == Delivered(1)
    assert _all(database, "select id::text, doc->>'a', short from sinks.made") == [(identity, "1", "abc")]


@pytest.mark.parametrize(
    ("table", "options", "expected"),
    [
        ("sinks.absent", {"create": False}, "TABLE_MISSING"),
        ("nowhere.absent", {}, "SCHEMA_MISSING"),
        ("sinks.there", {"upsert_on": "n"}, "UPSERT_WITHOUT_UNIQUE"),
        ("sinks.there", {"upsert_on": "m"}, "UPSERT_COLUMN.*the rows have only n, at"),
        ("sinks.narrow", {}, "COLUMN_MISSING.*'at'"),
        ("sinks.other", {}, "COLUMN_TYPE.*'at' is text, the rows have TIMESTAMP.*timestamp with time zone"),
        ("sinks.zoneless", {}, "COLUMN_TYPE.*'at' is timestamp without time zone"),
        ("sinks.asking", {}, "COLUMN_MISSING.*'more' is NOT NULL"),
    ],
)
def test_a_table_that_does_not_fit_is_an_error_before_the_first_batch(
    postgres: Service,
    database: psycopg.Connection[Any],
    writer: Writer,
    table: str,
    options: dict[str, Any],
    expected: str,
) -> None:
    database.execute(
        "create table sinks.there (n bigint, at timestamptz, m int unique); create table sinks.narrow (n bigint); "
        "create table sinks.other (n bigint, at text); create table sinks.zoneless (n bigint, at timestamp); "
        "create table sinks.asking (n bigint, at timestamptz, more int not null, id serial not null)"
    )
    sink = to_postgres(table, dsn=postgres.url, **options)
    with pytest.raises(HeadraceError, match=expected):
        sink.prepare({"n": pl.Int64(), "at": pl.Datetime("us", "UTC")}, [writer.name], writer.epoch)


def test_a_wrong_password_is_refused_and_never_shown(postgres: Service, writer: Writer) -> None:
    sink = to_postgres("spend", dsn=postgres.dsn, password="hunter2")
    with pytest.raises(HeadraceError, match="SINK_REFUSED") as caught:
        sink.prepare({"n": pl.Int64()}, [writer.name], writer.epoch)
    secret = str(conninfo_to_dict(postgres.dsn)["password"])
    for text in (str(caught.value), repr(sink), sink.place, str(sink)):
        assert "hunter2" not in text
        assert secret not in text


def test_a_server_that_is_not_there_is_unreachable(writer: Writer) -> None:
    sink = to_postgres("spend", dsn="host=127.0.0.1 port=1 user=x password=hunter2")
    with pytest.raises(Unreachable, match=r"postgres table 'spend' at 127\.0\.0\.1:1") as caught:
        sink.prepare({"n": pl.Int64()}, [writer.name], writer.epoch)
    assert "hunter2" not in str(caught.value)


def test_a_role_without_the_right_to_write_is_refused(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("drop role if exists reader")
    database.execute("create role reader login password 'looking'")
    database.execute("create table sinks.closed (n bigint)")
    database.execute("grant usage on schema sinks to reader")
    sink = to_postgres("sinks.closed", dsn=make_conninfo(postgres.dsn, user="reader", password="looking"))
    with pytest.raises(HeadraceError, match=r"SINK_REFUSED.*permission denied"):
        sink.prepare({"n": pl.Int64()}, [writer.name], writer.epoch)


def test_at_least_once_leaves_no_mark_and_writes_again(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    sink = to_postgres("sinks.plain", dsn=postgres.url, guarantee="at_least_once")
    rows = pl.DataFrame({"n": [1, 2]})
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    for _ in range(2):
        assert _deliver(sink, rows, writer.batch(0, 0, None)) == Delivered(2)
    assert _all(database, "select count(*) from sinks.plain") == [(4,)]
    assert _all(database, "select to_regclass('sinks.headrace_marks')") == [(None,)]


@pytest.mark.full
def test_a_table_that_another_has_locked_is_waited_for(
    postgres: Service, database: psycopg.Connection[Any], writer: Writer
) -> None:
    database.execute("create table sinks.locked (n bigint)")
    sink, rows = to_postgres("sinks.locked", dsn=postgres.url), pl.DataFrame({"n": [1]})
    sink.prepare(rows.schema, [writer.name], writer.epoch)
    with psycopg.connect(postgres.dsn) as other:
        other.execute("lock table sinks.locked in exclusive mode")
        with pytest.raises(Unreachable, match="lock timeout"):
            sink.deliver(rows, writer.batch(0, 0, None))
    assert _deliver(sink, rows, writer.batch(0, 0, None)) == Delivered(1)


@pytest.mark.spark
def test_windows_of_a_flow_reach_two_tables_and_refused_ones_the_dead_letters(
    postgres: Service, database: psycopg.Connection[Any], place: Any, spark: SparkSession
) -> None:
    database.execute(
        "create table sinks.latest (account text primary key check (account <> 'odd'), window_start timestamptz, "
        "window_end timestamptz, spent bigint)"
    )

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        payments = hr.read_files(
            spark,
            place.landing,
            format="json",
            schema="id STRING, account STRING, amount BIGINT, at TIMESTAMP",
            name="payments",
            files_per_batch=1,
        ).transform(hr.event_time("at"))
        step = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.drop())
        hourly = step(payments)
        history = to_postgres("sinks.history", dsn=postgres.url)
        latest = to_postgres("sinks.latest", dsn=postgres.url, upsert_on="account")
        hr.write("spend", (hourly.select("account", "window", "spent"), history, latest))

    checkpoint = place.checkpoint
    place.land("1", ("1", "a", 5, "10:05:00"), ("2", "odd", 1, "10:30:00"))
    place.land("2", ("3", "a", 7, "11:50:00"), ("4", "b", 1, "11:55:00"))
    spend.run(spark=spark, checkpoint=checkpoint, mode=hr.available_now())
    assert _all(database, "select account, spent from sinks.history order by 1") == [("a", 5), ("odd", 1)]
    assert _all(database, "select account, spent from sinks.latest") == [("a", 5)]
    place.land("3", ("5", "b", 2, "12:10:00"))
    spend.run(spark=spark, checkpoint=checkpoint, mode=hr.available_now(drain=True))
    history = [("a", 10, 5), ("a", 11, 7), ("b", 11, 1), ("b", 12, 2), ("odd", 10, 1)]
    hour = "extract(hour from window_start at time zone 'UTC')::int"
    assert _all(database, f"select account, {hour}, spent from sinks.history order by 1, 2") == history
    assert _all(database, "select account, spent from sinks.latest order by 1") == [("a", 7), ("b", 2)]
    letters = committed_rows(checkpoint / "spend" / "dead_letters")
    assert [(letter["reason"], json.loads(letter["raw"])["account"]) for letter in letters.to_dicts()] == [
        ("ROW_REFUSED", "odd")
    ]
