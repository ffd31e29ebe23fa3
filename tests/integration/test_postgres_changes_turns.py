"""A real PostgreSQL whose tables change while they are followed: it is noticed, told once, and nothing is lost."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest

import headrace as hr
from headrace.connectors.postgres.changes.catalogue import find_table
from headrace.connectors.postgres.changes.log_reader import ChangeLogReader
from headrace.connectors.postgres.changes.slot import ReplicationSlot
from headrace.connectors.postgres.connection import PostgresServer
from headrace.services.service import Service
from tests.integration.changes import feed_of, log_in, logged


@pytest.fixture
def name() -> str:
    """A name of this test's own, for tables and a slot."""
    return f"t_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def database(postgres: Service, name: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection outside a transaction; the slot and publication that a test leaves are removed."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        yield connection
        found = "from pg_replication_slots where slot_name = %s"
        connection.execute(f"select pg_drop_replication_slot(slot_name) {found}", (name,))
        connection.execute(f"drop publication if exists {name}")


class Following:
    """A table ``(id, note)`` with another beside it, both followed through one slot, one start after the other."""

    def __init__(self, postgres: Service, database: psycopg.Connection[Any], name: str, folder: Path) -> None:
        self.name, self.other, self.folder = name, f"{name}_other", folder
        self._postgres, self._database = postgres, database
        self._slot = ReplicationSlot(PostgresServer(postgres.dsn, None), name, name)
        self.execute(f"create table {name} (id int primary key, note text not null)")
        self.execute(f"create table {self.other} (id int primary key)")

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self._database.execute(statement)

    def run(self) -> None:
        """Start and stop: what was committed before is in the log, unless there was a reason to stop."""
        self._start()
        self.feed.stop()

    def run_beside(self, *statements: str) -> None:
        """Have a transaction committed while it is followed, until that has been given up."""
        self._start()
        with self._database.transaction():
            self.execute(*statements)
        until = time.monotonic() + 60
        while self.feed.failure is None and time.monotonic() < until:
            time.sleep(0.05)
        self.feed.stop()

    def _start(self) -> None:
        self.feed = feed_of(self._postgres, self.folder, self.name, [self.name, self.other])
        self.feed.start()

    def ids(self) -> list[int]:
        return [row["id"] for row in logged(self.folder, self.name)]

    def failure(self) -> hr.HeadraceError:
        failure = self.feed.failure
        assert failure is not None, "nothing was noticed"
        return failure

    def read_until(self) -> int:
        """How far the server believes it may forget."""
        confirmed = self._slot.confirmed(self._database)
        assert confirmed is not None
        return confirmed


@pytest.fixture
def following(postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path) -> Following:
    """Followed from a snapshot with one row, and with one row logged behind it."""
    following = Following(postgres, database, name, tmp_path)
    following.execute(f"insert into {name} values (1, 'a')")
    following.run()
    following.execute(f"insert into {name} values (2, 'b')")
    following.run()
    assert following.feed.failure is None
    return following


CHANGES = {
    "renamed": (
        ["alter table {name} rename to {name}_old", "insert into {name}_old values (3, 'c')"],
        "SCHEMA_CHANGED",
        "was renamed to public.{name}_old",
    ),
    "renamed and back": (
        [
            "alter table {name} rename to {name}_old",
            "insert into {name}_old values (3, 'c')",
            "alter table {name}_old rename to {name}",
        ],
        "SCHEMA_CHANGED",
        "was renamed to public.{name}_old",
    ),
    "made anew": (
        ["drop table {name}", "create table {name} (id int primary key, note text)", "insert into {name} values (3)"],
        "SCHEMA_CHANGED",
        "was dropped",
    ),
    "another primary key": (
        [
            "alter table {name} drop constraint {name}_pkey",
            "alter table {name} add primary key (note)",
            "delete from {name} where id = 1",
        ],
        "SCHEMA_CHANGED",
        "now identified by (note) instead of (id)",
    ),
    "another replica identity": (
        [
            "create unique index {name}_note on {name} (note)",
            "alter table {name} replica identity using index {name}_note",
            "delete from {name} where id = 1",
        ],
        "SCHEMA_CHANGED",
        "now identified by (note) instead of (id)",
    ),
    "whole rows": (
        ["alter table {name} replica identity full", "delete from {name} where id = 1"],
        "SCHEMA_CHANGED",
        "now identified by the whole row instead of (id)",
    ),
    "taken out of the publication": (
        ["alter publication {name} drop table {name}", "insert into {name} values (3, 'c')"],
        "PUBLICATION_INCOMPLETE",
        "has no table public.{name}, so changes made since then are missing",
    ),
    "taken out and put back": (
        [
            "alter publication {name} drop table {name}",
            "insert into {name} values (3, 'c')",
            "alter publication {name} add table {name}",
        ],
        "PUBLICATION_INCOMPLETE",
        "a table was removed from it for a time, so changes made since then are missing",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["while it runs", "while it is away"])
def test_a_table_that_can_no_longer_be_followed_is_noticed_and_the_server_forgets_nothing(
    following: Following, name: str, change: str, when: str
) -> None:
    statements, id, words = CHANGES[change]
    # A change of the other table, with which the server would be told to forget what came before it.
    script = [*(each.format(name=name) for each in statements), f"insert into {following.other} values (1)"]
    before = following.read_until()
    if when == "while it runs":
        following.run_beside(*script)
    else:
        following.execute(*script)
        following.run()
    assert following.failure().id == id
    assert words.format(name=name) in str(following.failure())
    assert following.ids() == [1, 2]
    assert following.read_until() == before
    following.run()
    assert following.failure().id == id, "it stays so at every start"


def test_a_table_that_is_taken_out_of_the_publication_is_noticed_without_any_change(
    following: Following, name: str
) -> None:
    following.execute(f"alter publication {name} drop table {name}")
    following.run()
    assert following.failure().id == "PUBLICATION_INCOMPLETE"


def _dead_letters(following: Following, columns: dict[str, pl.DataType]) -> list[str]:
    reader = ChangeLogReader(following.folder, f"public.{following.name}", columns, "dead_letter")
    entries = [(0, log_in(following.folder).next())]
    return [row[1] for each in reader.read(entries, None) for row in each.dead.rows()]  # type: ignore[arg-type]


def _turns(following: Following) -> list[bool]:
    log = log_in(following.folder)
    return [log.entry(number).alters(f"public.{following.name}") for number in range(log.next())]


def test_a_column_that_is_added_is_told_once_through_every_restart(following: Following, name: str) -> None:
    assert _turns(following) == [False, False]
    following.execute(f"alter table {name} add column more numeric(10,2)")
    for number in (3, 4, 5):
        following.execute(f"insert into {name} values ({number}, 'c', 1.5)")
        following.run()
    assert following.ids() == [1, 2, 3, 4, 5]
    assert _turns(following) == [False, False, True, False, False]
    assert _dead_letters(following, {"id": pl.Int32(), "note": pl.String()}) == ["COLUMN_ADDED"]


def test_a_column_that_is_removed_stops_those_who_read_it_behind_what_was_logged_before(
    following: Following, name: str
) -> None:
    following.execute(f"alter table {name} drop column note", f"insert into {name} values (3)")
    following.run()
    assert _turns(following) == [False, False, True]
    assert following.feed.failure is None
    assert _dead_letters(following, {"id": pl.Int32()}) == []
    with pytest.raises(hr.HeadraceError, match="column 'note' was removed or renamed") as raised:
        _dead_letters(following, {"id": pl.Int32(), "note": pl.String()})
    assert raised.value.id == "SCHEMA_CHANGED"


def test_a_partitioned_table_and_one_that_logs_whole_rows_are_themselves_at_every_start(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    database.execute(f"create domain {name}_small as numeric(5,2)")
    database.execute(
        f"create table {name} (id int, at date, n {name}_small, twice int generated always as (id * 2) stored, "
        "note varchar(9), primary key (id, at)) partition by range (at)"
    )
    database.execute(f"create table {name}_1 partition of {name} for values from ('2026-01-01') to ('2027-01-01')")
    database.execute(f"create table {name}_whole (a int, b text); alter table {name}_whole replica identity full")
    tables = [name, f"{name}_whole"]
    for number in range(3):
        feed = feed_of(postgres, tmp_path, name, tables)
        feed.start()
        feed.stop()
        database.execute(f"insert into {name} values ({number}, '2026-05-05', 1.5)")
        database.execute(f"update {name} set n = 2; delete from {name}")
        database.execute(f"insert into {name}_whole values ({number}, 'x'); delete from {name}_whole")
        assert feed.failure is None
    log = log_in(tmp_path)
    assert log.next() > 1
    assert not any(log.entry(number).altered for number in range(log.next()))


def test_a_primary_key_that_is_checked_only_at_the_commit_is_none(database: psycopg.Connection[Any], name: str) -> None:
    database.execute(f"create table {name} (id int primary key deferrable)")
    with pytest.raises(hr.HeadraceError, match="a deferrable one does not count") as raised:
        find_table(database, name)
    assert raised.value.id == "KEY_MISSING"
