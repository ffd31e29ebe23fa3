"""``hr.read_postgres_changes`` and a real PostgreSQL: a snapshot, then every change once, whatever breaks."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import headrace as hr
from headrace.connectors.postgres.changes.catalogue import find_table
from headrace.connectors.postgres.changes.change_log import LogEntry, LogWriter
from headrace.connectors.postgres.changes.replication import ReplicationFeed
from headrace.connectors.postgres.changes.slot import ReplicationSlot
from headrace.connectors.postgres.connection import PostgresServer
from headrace.connectors.servers import running
from headrace.services.service import Service
from tests.integration.changes import feed_of, log_in, logged, table_of


@pytest.fixture
def name() -> str:
    """A name of this test's own, for a table and a slot."""
    return f"t_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def database(postgres: Service) -> Iterator[psycopg.Connection[Any]]:
    """A connection outside a transaction; slots and publications that a test leaves are removed."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        yield connection
        connection.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
        for (publication,) in connection.execute("select pubname from pg_publication").fetchall():
            connection.execute(f'drop publication "{publication}"')


def _until(said: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not said():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def _started(new: Callable[[], ReplicationFeed]) -> ReplicationFeed:
    """A feed that has begun, though another one may end its session before it has."""
    while True:
        feed = new()
        try:
            feed.start()
        except hr.HeadraceError as problem:
            if problem.id != "SOURCE_UNREACHABLE":
                raise
        else:
            return feed


def _write(dsn: str, table: str, seed: int, stop: threading.Event, keys: range) -> None:
    """Random transactions over rows of its own, some of them taken back, until told to stop."""
    chance = random.Random(seed)
    with psycopg.connect(dsn) as connection:
        while not stop.is_set():
            for _ in range(chance.randint(1, 5)):
                key = chance.choice(keys)
                match chance.randrange(5):
                    case 0:
                        connection.execute(f"delete from {table} where id = %s", (key,))
                    case 1:
                        other = chance.choice(keys)
                        connection.execute(
                            f"update {table} set id = %s where id = %s "
                            f"and not exists (select 1 from {table} where id = %s)",
                            (other, key, other),
                        )
                    case _:
                        connection.execute(
                            f"insert into {table} values (%s, 1, %s) on conflict (id) "
                            f"do update set n = {table}.n + 1, note = excluded.note",
                            (key, chance.choice([None, "", "ä" * chance.randint(1, 9), "x" * 20_000])),
                        )
            if chance.random() < 0.2:
                connection.rollback()
            else:
                connection.commit()


def test_a_snapshot_under_writes_and_the_changes_behind_it_have_no_gap_and_no_overlap(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key, n int, note text)")
    database.execute(f"insert into {name} select g, 0, 'first' from generate_series(1, 30000) g")
    # Only ever counted up: its versions in the log must be every number, once.
    database.execute(f"create table {name}_count (id int primary key, n int)")
    database.execute(f"insert into {name}_count values (1, 0)")
    stop = threading.Event()

    def count() -> None:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            while not stop.is_set():
                connection.execute(f"update {name}_count set n = n + 1")

    spans = [range(1, 15_000), range(15_000, 40_000)]
    writers = [threading.Thread(target=_write, args=(postgres.dsn, name, 7, stop, keys)) for keys in spans]
    writers.append(threading.Thread(target=count))
    for writer in writers:
        writer.start()
    _until(lambda: database.execute(f"select n from {name}_count").fetchall()[0][0] > 0)
    feed = feed_of(postgres, tmp_path, name, [name, f"{name}_count"])
    feed.start()
    time.sleep(1.5)
    stop.set()
    for writer in writers:
        writer.join()
    feed.stop()
    again = feed_of(postgres, tmp_path, name, [name, f"{name}_count"])
    again.start()
    again.stop()
    rows = logged(tmp_path, name)
    assert len(rows) > 30_000
    there = {row[0]: row for row in database.execute(f"select id, n, note from {name}").fetchall()}
    assert table_of(rows, "id", ["id", "n", "note"]) == there
    numbers = [row["n"] for row in logged(tmp_path, f"{name}_count")]
    last = database.execute(f"select n from {name}_count").fetchall()[0][0]
    assert numbers[0] > 0, "nothing was counted before the snapshot"
    assert numbers == list(range(numbers[0], last + 1))


class Interrupted(LogWriter):
    """Breaks, as the server sees it, between the log and the slot."""

    def publish(self, entry: LogEntry) -> bool:
        super().publish(entry)
        raise OSError("interrupted")


def test_transactions_that_come_again_after_a_crash_between_log_and_slot_are_logged_once(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key)")
    first = feed_of(postgres, tmp_path, name, [name])
    first.start()
    first.stop()
    for start in (0, 100):
        database.execute(f"insert into {name} select generate_series({start}, {start + 99})")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headrace.connectors.postgres.changes.replication.LogWriter", Interrupted)
            with pytest.raises(OSError, match="interrupted"):
                feed_of(postgres, tmp_path, name, [name]).start()
    slot = ReplicationSlot(feed_of(postgres, tmp_path, name, [name])._slot.server, name, name)
    before = slot.confirmed(database)
    last = feed_of(postgres, tmp_path, name, [name])
    last.start()
    last.stop()
    assert slot.confirmed(database) != before
    assert [row["id"] for row in logged(tmp_path, name)] == list(range(200))


def test_a_feed_that_was_replaced_cannot_write_what_its_successor_has_written(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key)")
    # Both believe to be the only one of this checkpoint, and end each other's sessions again and again.
    feeds = [_started(lambda: feed_of(postgres, tmp_path, name, [name])) for _ in range(2)]
    for number in range(200):
        database.execute(f"insert into {name} values ({number})")
        time.sleep(0.01)
    for feed in feeds:
        feed.stop()
    last = feed_of(postgres, tmp_path, name, [name])
    last.start()
    last.stop()
    assert [row["id"] for row in logged(tmp_path, name)] == list(range(200))


def test_an_entry_is_written_once(postgres: Service, database: Any, name: str, tmp_path: Path) -> None:
    database.execute(f"create table {name} (id int primary key)")
    feed = feed_of(postgres, tmp_path, name, [name])
    feed.start()
    feed.stop()
    log = log_in(tmp_path)
    assert not log.publish(0, log.entry(0))


def test_a_server_that_is_killed_is_waited_for_and_brings_nothing_twice(name: str, tmp_path: Path) -> None:
    with running("postgres") as own:
        with psycopg.connect(own.dsn, autocommit=True) as connection:
            connection.execute(f"create table {name} (id int primary key)")
            feed = feed_of(own, tmp_path, name, [name])
            feed.start()
            connection.execute(f"insert into {name} select generate_series(0, 99)")
        _until(lambda: len(logged(tmp_path, name)) == 100)
        own.kill()
        time.sleep(0.5)
        own.start()
        with psycopg.connect(own.dsn, autocommit=True) as connection:
            connection.execute(f"insert into {name} select generate_series(100, 199)")
        _until(lambda: len(logged(tmp_path, name)) >= 200)
        feed.stop()
        assert [row["id"] for row in logged(tmp_path, name)] == list(range(200))


_KILLED = """
import os, sys
from pathlib import Path
from headrace.connectors.postgres.changes import replication
from tests.integration.changes import feed_of

class Killed(replication.LogWriter):
    def publish(self, entry):
        super().publish(entry)
        os.kill(os.getpid(), 9)

replication.LogWriter = Killed

class Service:
    dsn = sys.argv[1]

feed_of(Service, Path(sys.argv[2]), sys.argv[3], [sys.argv[3]]).start()
"""


def test_a_process_that_is_killed_between_log_and_slot_loses_and_doubles_nothing(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key, note text)")
    database.execute(f"insert into {name} values (-1, 'there before')")
    for start in range(0, 300, 100):
        database.execute(f"insert into {name} select g, 'x' from generate_series({start}, {start + 99}) g")
        arguments = [sys.executable, "-c", _KILLED, postgres.dsn, str(tmp_path), name]
        killed = subprocess.run(arguments, check=False, cwd=Path(__file__).parents[2])
        # The first run finds everything in the snapshot and has nothing to log.
        assert killed.returncode == (0 if start == 0 else -9)
    feed = feed_of(postgres, tmp_path, name, [name])
    feed.start()
    feed.stop()
    assert [row["id"] for row in logged(tmp_path, name)] == [-1, *range(300)]


def test_a_snapshot_that_a_crash_interrupted_is_begun_again(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(f"create table {name} (id int primary key)")
    database.execute(f"insert into {name} select generate_series(0, 9)")
    with monkeypatch.context() as broken:
        broken.setattr("headrace.connectors.postgres.changes.replication.write_durably", _fail)
        with pytest.raises(OSError, match="disk full"):
            feed_of(postgres, tmp_path, name, [name]).start()
    database.execute(f"delete from {name} where id = 9")
    feed = feed_of(postgres, tmp_path, name, [name])
    feed.start()
    feed.stop()
    assert [(row["change"], row["id"]) for row in logged(tmp_path, name)] == [("insert", n) for n in range(9)]


def _fail(*_: Any) -> None:
    raise OSError("disk full")


def test_updates_and_deletes_tell_what_the_table_logs_of_old_rows(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    large = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=1_200_000))
    for table, identity in ((name, "default"), (f"{name}_full", "full")):
        database.execute(f"create table {table} (id int primary key, n int, large text)")
        database.execute(f"alter table {table} replica identity {identity}")
        database.execute(f"insert into {table} values (1, 0, %s)", (large,))
    feed = feed_of(postgres, tmp_path, name, [name, f"{name}_full"])
    feed.start()
    for table in (name, f"{name}_full"):
        database.execute(f"update {table} set n = 1")
        database.execute(f"update {table} set id = 2")
        database.execute(f"delete from {table}")
    feed.stop()
    last = feed_of(postgres, tmp_path, name, [name, f"{name}_full"])
    last.start()
    last.stop()

    def changes_of(table: str) -> list[tuple[Any, ...]]:
        return [
            (row["change"], row["id"], row["n"], row["large"] and row["large"] == large, row["unchanged"])
            for row in logged(tmp_path, table)
        ]

    assert changes_of(name) == [
        ("insert", 1, 0, True, None),
        ("update_after", 1, 1, None, ["large"]),
        ("delete", 1, None, None, None),
        ("insert", 2, 1, None, ["large"]),
        ("delete", 2, None, None, None),
    ]
    assert changes_of(f"{name}_full") == [
        ("insert", 1, 0, True, None),
        ("update_before", 1, 0, True, None),
        ("update_after", 1, 1, True, None),
        ("delete", 1, 1, True, None),
        ("insert", 2, 1, True, None),
        ("delete", 2, 1, True, None),
    ]
    positions = [row["position"] for row in logged(tmp_path, f"{name}_full")]
    assert positions == sorted(positions)
    assert positions[1] == positions[2] != positions[3]


def test_a_key_that_the_server_stores_apart_stays_the_key_of_its_row(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    long = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=2_500))
    database.execute(f"create table {name} (url text primary key, hits int, body text)")
    database.execute(f"alter table {name} alter url set storage external")
    database.execute(f"insert into {name} values (%s, 1, %s)", (long, long * 4))
    feed = feed_of(postgres, tmp_path, name, [name])
    feed.start()
    database.execute(f"update {name} set hits = 2")
    feed.stop()
    last = feed_of(postgres, tmp_path, name, [name])
    last.start()
    last.stop()
    changes = [(row["change"], row["url"] == long, row["hits"], row["unchanged"]) for row in logged(tmp_path, name)]
    assert changes == [("insert", True, 1, None), ("update_after", True, 2, ["body"])]


def test_columns_that_an_index_only_carries_are_no_part_of_the_key(
    postgres: Service, database: psycopg.Connection[Any], name: str
) -> None:
    database.execute(f"create table {name} (id int, state text, primary key (id) include (state))")
    assert find_table(database, name).key == ("id",)


def test_a_table_that_others_inherit_from_is_refused(
    postgres: Service, database: psycopg.Connection[Any], name: str
) -> None:
    database.execute(f"create table {name} (id int primary key)")
    database.execute(f"create table {name}_child () inherits ({name})")
    with pytest.raises(hr.HeadraceError) as raised:
        find_table(database, name)
    assert raised.value.id == "TABLE_INHERITED"


def test_a_snapshot_from_which_a_policy_would_hide_rows_is_an_error_and_leaves_no_slot(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key)")
    database.execute(f"insert into {name} values (1), (2)")
    database.execute(f"alter table {name} enable row level security")
    database.execute(f"create policy own on {name} using (id = 1)")
    database.execute(f"create publication {name} for table {name} with (publish_via_partition_root = true)")
    database.execute(f"create role {name} login replication password 'p'")
    database.execute(f"grant select on {name} to {name}")
    server = PostgresServer(make_conninfo(postgres.dsn, user=name, password="p"))
    feed = ReplicationFeed(ReplicationSlot(server, name, name), tmp_path, [name], lambda log: None)
    with pytest.raises(hr.HeadraceError, match="row-level security"):
        feed.start()
    assert database.execute("select count(*) from pg_replication_slots where slot_name = %s", (name,)).fetchone() == (
        0,
    )


def test_one_transaction_over_two_tables_is_one_entry(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    tables = [name, f"{name}_lines"]
    for table in tables:
        database.execute(f"create table {table} (id int primary key)")
    feed = feed_of(postgres, tmp_path, name, tables)
    feed.start()
    with database.transaction():
        for table in tables:
            database.execute(f"insert into {table} select generate_series(1, 5)")
    feed.stop()
    last = feed_of(postgres, tmp_path, name, tables)
    last.start()
    last.stop()
    entries = [log_in(tmp_path).entry(number) for number in range(log_in(tmp_path).next())]
    assert [sorted((file.table, file.rows) for file in entry.files) for entry in entries if entry.files] == [
        sorted((f"public.{table}", 5) for table in tables)
    ]


_TYPES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "smallint": [-32768, 32767],
    "integer": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "numeric(38,10)": ["'-1234567890123456789012345678.0000000001'", "'NaN'"],
    "numeric": ["'1e-20'", "'Infinity'"],
    "real": ["'NaN'", "1.17549435e-38"],
    "double precision": ["'-Infinity'", "0.1"],
    "text": ["''", "'NULL'", r"E'\t\n\\N'", "'ä€😀'"],
    "character varying(20)": ["'a'"],
    "uuid": ["'0b96910c-4892-47f3-a87a-dd1cc4b2eb81'"],
    "jsonb": ["""'{"a": [1, null]}'"""],
    "bytea": [r"'\x'", r"'\x00ff5c'"],
    "date": ["'2024-02-29'", "'infinity'", "'0044-03-15 BC'"],
    "timestamp": ["'2024-02-29 23:59:59.999999'", "'-infinity'"],
    "timestamptz": ["'2024-02-29 23:59:59.5+05:30'", "'infinity'"],
    "interval": ["'1 day 02:03:04'"],
    "integer[]": ["'{}'", "'{1,NULL,-3}'", "'[0:1]={5,6}'"],
    "text[]": [r"""'{a,"b,c",NULL,"NULL","q\"\\u",""}'"""],
    "numeric(5,2)[]": ["'{1.50,NaN}'"],
    "timestamptz[]": ["'{2024-01-01 00:00:00+00}'"],
    "boolean[]": ["'{t,f}'"],
}


def test_every_type_reads_the_same_from_the_snapshot_and_from_a_change(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    columns = [f"c{number}" for number in range(len(_TYPES))]
    declared = ", ".join(f"{column} {kind}" for column, kind in zip(columns, _TYPES, strict=True))
    database.execute(f"create table {name} (id serial primary key, {declared})")
    most = max(map(len, _TYPES.values()))
    rows = [[values[row] if row < len(values) else "null" for values in _TYPES.values()] for row in range(most + 1)]
    inserts = [f"insert into {name} ({', '.join(columns)}) values ({', '.join(map(str, row))})" for row in rows]
    for insert in inserts:
        database.execute(insert)
    feed = feed_of(postgres, tmp_path, name, [name])
    feed.start()
    # The same rows, under a session that writes values in another way.
    database.execute("set timezone = 'Asia/Kolkata'; set datestyle = 'German'; set bytea_output = 'escape'")
    for insert in inserts:
        database.execute(insert)
    feed.stop()
    last = feed_of(postgres, tmp_path, name, [name])
    last.start()
    last.stop()
    read = [tuple(repr(row[column]) for column in columns) for row in logged(tmp_path, name)]
    assert len(read) == 2 * len(rows)
    assert read[: len(rows)] == read[len(rows) :]
    values = {kind: [row[at] for row in read[: len(_TYPES[kind])]] for at, kind in enumerate(_TYPES)}
    assert values == {
        "boolean": ["True", "False"],
        "smallint": ["-32768", "32767"],
        "integer": ["-2147483648", "2147483647"],
        "bigint": ["-9223372036854775808", "9223372036854775807"],
        "numeric(38,10)": ["Decimal('-1234567890123456789012345678.0000000001')", "None"],
        "numeric": ["'0.00000000000000000001'", "'Infinity'"],
        "real": ["nan", "1.1754943508222875e-38"],
        "double precision": ["-inf", "0.1"],
        "text": ["''", "'NULL'", r"'\t\n\\N'", "'ä€😀'"],
        "character varying(20)": ["'a'"],
        "uuid": ["'0b96910c-4892-47f3-a87a-dd1cc4b2eb81'"],
        "jsonb": ["""'{"a": [1, null]}'"""],
        "bytea": ["b''", r"b'\x00\xff\\'"],
        "date": ["datetime.date(2024, 2, 29)", "datetime.date(9999, 12, 31)", "datetime.date(1, 1, 1)"],
        "timestamp": ["datetime.datetime(2024, 2, 29, 23, 59, 59, 999999)", "datetime.datetime(1, 1, 1, 0, 0)"],
        "timestamptz": [
            "datetime.datetime(2024, 2, 29, 18, 29, 59, 500000, tzinfo=zoneinfo.ZoneInfo(key='UTC'))",
            "datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=zoneinfo.ZoneInfo(key='UTC'))",
        ],
        "interval": ["'1 day 02:03:04'"],
        "integer[]": ["[]", "[1, None, -3]", "[5, 6]"],
        "text[]": [r"""['a', 'b,c', None, 'NULL', 'q"\\u', '']"""],
        "numeric(5,2)[]": ["[Decimal('1.50'), None]"],
        "timestamptz[]": ["[datetime.datetime(2024, 1, 1, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC'))]"],
        "boolean[]": ["[True, False]"],
    }


def test_a_second_pipeline_on_the_same_slot_is_refused(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key)")
    feed = feed_of(postgres, tmp_path / "one", name, [name])
    feed.start()
    try:
        with pytest.raises(hr.HeadraceError, match="is read by another pipeline") as raised:
            feed_of(postgres, tmp_path / "two", name, [name]).start()
    finally:
        feed.stop()
    assert raised.value.id == "SLOT_IN_USE"
    # Its connection is closed, which the server has yet to see.
    locks = "select 1 from pg_locks where locktype = 'advisory'"
    _until(lambda: database.execute(locks).fetchall() == [])
    with pytest.raises(hr.HeadraceError, match="was not made for this checkpoint") as raised:
        feed_of(postgres, tmp_path / "two", name, [name]).start()
    assert raised.value.id == "SLOT_TAKEN"


def test_a_slot_that_is_gone_or_was_read_by_another_program_is_an_error(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path
) -> None:
    database.execute(f"create table {name} (id int primary key)")
    feed = feed_of(postgres, tmp_path, name, [name])
    feed.start()
    feed.stop()
    database.execute(f"insert into {name} values (1)")
    database.execute("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", (name,))
    with pytest.raises(hr.HeadraceError, match="was read by another program") as raised:
        feed_of(postgres, tmp_path, name, [name]).start()
    assert raised.value.id == "SLOT_LOST"
    database.execute("select pg_drop_replication_slot(%s)", (name,))
    with pytest.raises(hr.HeadraceError, match="is gone") as raised:
        feed_of(postgres, tmp_path, name, [name]).start()
    assert raised.value.id == "SLOT_LOST"


def test_much_that_concerns_no_table_of_ours_is_forgotten_by_the_server(
    postgres: Service, database: psycopg.Connection[Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.connectors.postgres.changes.replication.IDLE_BYTES", 100_000)
    database.execute(f"create table {name} (id int primary key)")
    database.execute(f"create table {name}_other (note text)")
    feed = feed_of(postgres, tmp_path, name, [name])
    feed.start()
    slot = ReplicationSlot(feed._slot.server, name, name)
    before = slot.confirmed(database)
    assert before is not None
    database.execute(f"insert into {name}_other select repeat('x', 1000) from generate_series(1, 1000)")
    _until(lambda: (slot.confirmed(database) or 0) > before + 500_000)
    database.execute(f"insert into {name} values (1)")
    feed.stop()
    last = feed_of(postgres, tmp_path, name, [name])
    last.start()
    last.stop()
    assert [row["id"] for row in logged(tmp_path, name)] == [1]
