"""A table that changes while it is followed: what its flows are told, once, and that nothing is passed over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest

from headrace.connectors.postgres.changes.catalogue import SourceColumn, SourceTable
from headrace.connectors.postgres.changes.change_log import ChangeLog
from headrace.connectors.postgres.changes.log_reader import ChangeLogEnumerator, ChangeLogReader
from headrace.connectors.postgres.changes.replication import ReplicationFeed
from headrace.errors import HeadraceError
from tests.unit.connectors.postgres.changes.messages import insert, relation, transaction, truncate
from tests.unit.connectors.postgres.changes.scripted_slot import Slot, born, feed_of

ID, LARGE = SourceColumn("id", 23, -1, "integer"), SourceColumn("large", 25, -1, "text")
ORDERS = SourceTable("public.orders", (ID, LARGE), ("id",), whole=False, oid=1)


def follow(folder: Path, slot: Slot) -> tuple[ChangeLog, ReplicationFeed]:
    """Start a feed, which logs what is waiting, and stop it."""
    log = ChangeLog(folder / "log") if (folder / "log").exists() else born(folder, ORDERS)
    feed = feed_of(slot, folder, ORDERS)
    feed.start()
    feed.stop()
    return log, feed


def dead_letters(folder: Path, first: int = 0) -> list[tuple[str, str]]:
    """The dead letters of a flow that reads all columns from an entry on."""
    columns = {"id": pl.Int32(), "large": pl.String()}
    reader = ChangeLogReader(folder, "public.orders", columns, "dead_letter")
    entries = (first, ChangeLog(folder / "log").next())
    letters = [each.dead for each in reader.read([entries], None)]  # type: ignore[arg-type]
    return pl.concat(letters).select("reason", "detail").rows()


class Breaking(Slot):
    """Loses the connection once, behind the first row."""

    breaks = False

    def messages(self, connection: Any, upto: int) -> Iterator[bytes]:
        for message in self.waiting:
            yield message
            if self.breaks and message[:1] == b"I":
                self.breaks = False
                raise psycopg.OperationalError("server closed the connection unexpectedly")


def test_a_new_column_is_told_though_the_connection_broke_where_it_first_came(tmp_path: Path) -> None:
    log, slot = born(tmp_path, ORDERS), Breaking()
    feed = feed_of(slot, tmp_path, ORDERS)
    feed.start()
    slot.breaks = True
    slot.commit(20, relation("id", "large", "note"), insert("1", "a", "n"))
    until = time.monotonic() + 60
    while log.next() < 2 and time.monotonic() < until:
        time.sleep(0.02)
    feed.stop()
    assert not slot.breaks
    assert [reason for reason, _ in dead_letters(tmp_path)] == ["COLUMN_ADDED"]


def test_a_new_column_is_told_once_however_often_the_pipeline_starts(tmp_path: Path) -> None:
    slot = Slot()
    for lsn in (20, 40, 60):
        slot.commit(lsn, relation("id", "large", "note"), insert(str(lsn), "a", "n"))
        log, _ = follow(tmp_path, slot)
    slot.commit(80, relation("id", "large", "note", "more"), insert("80", "a", "n", "m"))
    follow(tmp_path, slot)
    assert log.next() == 5
    details = [detail.split(" now has a column ")[1].split(",")[0] for _, detail in dead_letters(tmp_path)]
    assert details == ["note", "more"]


def test_a_new_column_that_comes_again_because_the_server_was_not_told_is_no_news(tmp_path: Path) -> None:
    slot = Slot()
    logged = [
        *transaction(20, relation("id", "large"), insert("1", "a")),
        *transaction(30, relation("id", "large", "note"), insert("2", "a", "n")),
    ]
    slot.waiting, slot.end_of_log = logged, 38
    follow(tmp_path, slot)
    slot.commit(40, insert("3", "a", "n"))
    slot.waiting = [*logged, *slot.waiting]
    log, _ = follow(tmp_path, slot)
    assert [log.entry(number).alters("public.orders") for number in range(3)] == [False, True, False]


def test_a_new_column_is_told_also_when_its_table_is_emptied_before_a_row_has_it(tmp_path: Path) -> None:
    slot = Slot()
    slot.commit(20, relation("id", "large", "note"), truncate())
    follow(tmp_path, slot)
    slot.commit(40, relation("id", "large", "note"), insert("2", "a", "n"))
    follow(tmp_path, slot)
    assert [reason for reason, _ in dead_letters(tmp_path)] == ["COLUMN_ADDED", "TABLE_TRUNCATED"]


@pytest.mark.parametrize(
    ("columns", "row", "words"),
    [
        (("id",), ("2",), "column 'large' was removed or renamed"),
        (("id:20", "large"), ("2", "b"), "column 'id' is no longer integer"),
    ],
)
def test_what_was_logged_before_a_column_was_removed_or_retyped_is_a_batch_of_its_own(
    tmp_path: Path, columns: tuple[str, ...], row: tuple[str, ...], words: str
) -> None:
    slot = Slot()
    slot.commit(20, relation("id", "large"), insert("1", "a"))
    follow(tmp_path, slot)
    slot.commit(40, relation(*columns), insert(*row))
    follow(tmp_path, slot)
    slot.commit(60, relation(*columns), insert(*row))
    log, _ = follow(tmp_path, slot)
    assert ChangeLogEnumerator("public.orders", tmp_path).plan(0, most=None).until == 2
    assert [log.entry(number).alters("public.orders") for number in range(4)] == [False, False, True, False]
    with pytest.raises(HeadraceError, match=words) as raised:
        dead_letters(tmp_path, first=2)
    assert raised.value.id == "SCHEMA_CHANGED"


RENAMED = (relation("id", "large", table="orders_old"), insert("2", "b"))


def error_after(feed: ReplicationFeed, folder: Path, entries: int) -> str:
    """The error that a flow gets once it has read so many entries; it gets all of them."""
    enumerator = ChangeLogEnumerator("public.orders", folder, lambda: feed.failure)
    assert enumerator.plan(0, most=None).until == entries
    with pytest.raises(HeadraceError) as raised:
        enumerator.plan(entries, most=None)
    return raised.value.id


def test_a_table_that_is_renamed_while_it_is_followed_stops_its_flows_and_the_server_keeps_its_changes(
    tmp_path: Path,
) -> None:
    log, slot = born(tmp_path, ORDERS), Slot()
    feed = feed_of(slot, tmp_path, ORDERS)
    slot.commit(20, relation("id", "large"), insert("1", "a"))
    feed.start()
    slot.commit(40, *RENAMED)
    until = time.monotonic() + 60
    while feed.failure is None and time.monotonic() < until:
        time.sleep(0.02)
    feed.stop()
    assert (log.next(), max(slot.forgotten)) == (2, 28)
    assert error_after(feed, tmp_path, entries=2) == "SCHEMA_CHANGED"


def test_a_table_that_was_renamed_while_nobody_followed_it_stops_its_flows_behind_what_was_logged(
    tmp_path: Path,
) -> None:
    slot = Slot()
    slot.commit(20, relation("id", "large"), insert("1", "a"))
    follow(tmp_path, slot)
    for _ in range(2):
        slot.commit(40, *RENAMED)
        log, feed = follow(tmp_path, slot)
        assert (log.next(), max(slot.forgotten)) == (2, 28)
        assert error_after(feed, tmp_path, entries=2) == "SCHEMA_CHANGED"
