"""Transactions into a log: which rows each change becomes, and what is passed over."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.connectors.postgres.changes.catalogue import SourceColumn, SourceTable
from headrace.connectors.postgres.changes.change_log import ChangeLog, LogEntry, LogWriter
from headrace.connectors.postgres.changes.transactions import TransactionRecorder, position
from headrace.errors import HeadraceError
from tests.unit.connectors.postgres.changes.messages import insert, relation, transaction, truncate, update, values

ID, LARGE = SourceColumn("id", 23, -1, "integer"), SourceColumn("large", 25, -1, "text")
ORDERS = SourceTable("public.orders", (ID, LARGE), ("id",), whole=False, oid=1)


def recorded(
    tmp_path: Path, messages: list[bytes], after: int = 0, table: SourceTable = ORDERS
) -> tuple[TransactionRecorder, list[Any]]:
    log = ChangeLog(tmp_path)
    log.create()
    writer = LogWriter(log, 0)
    recorder = TransactionRecorder({table.name: table}, LogEntry(last=after), writer)
    try:
        recorder.record(messages)
    except HeadraceError:
        writer.discard()
        raise
    rows = [row for file in writer.finish() for row in pl.read_parquet(log.data(file)).to_dicts()]
    values = [[None if row[name] is None else row[name].decode() for name in ("0", "1")] for row in rows]
    return recorder, [(row["kind"], row["place"], row["unsent"], *each) for row, each in zip(rows, values, strict=True)]


def test_changes_are_placed_by_their_commit_and_their_number_in_the_transaction(tmp_path: Path) -> None:
    messages = transaction(100, relation("id", "large"), insert("1", "a"), insert("2", None))
    recorder, rows = recorded(tmp_path, messages)
    assert rows == [("insert", position(100, 0), None, "1", "a"), ("insert", position(100, 1), None, "2", None)]
    assert (recorder.last, recorder.end, recorder.rows) == (100, 108, 2)


def test_transactions_up_to_the_last_logged_one_are_passed_over_but_their_tables_are_known(tmp_path: Path) -> None:
    messages = [
        *transaction(100, relation("id", "large"), insert("1", "a"), truncate()),
        *transaction(200, insert("2", "b")),
    ]
    recorder, rows = recorded(tmp_path, messages, after=100)
    assert rows == [("insert", position(200, 0), None, "2", "b")]
    assert recorder.truncated == {}


def test_an_update_of_the_key_is_a_delete_and_an_insert_at_one_position(tmp_path: Path) -> None:
    moved = update(values("2", "..."), b"K" + values("1", None))
    _, rows = recorded(tmp_path, transaction(100, relation("id", "large"), moved))
    assert rows == [("delete", position(100, 0), None, "1", None), ("insert", position(100, 0), ["large"], "2", None)]


def test_an_update_of_the_key_with_the_whole_old_row_is_a_delete_and_an_insert_too(tmp_path: Path) -> None:
    moved = update(values("2", "new"), b"O" + values("1", "old"))
    _, rows = recorded(tmp_path, transaction(100, relation("id", "large"), moved))
    assert rows == [("delete", position(100, 0), None, "1", "old"), ("insert", position(100, 0), None, "2", "new")]


def test_a_value_that_was_not_sent_is_taken_from_the_old_row_where_that_is_whole(tmp_path: Path) -> None:
    changed = update(values("1", "..."), b"O" + values("1", "old"))
    _, rows = recorded(tmp_path, transaction(100, relation("id", "large"), changed))
    assert rows == [
        ("update_before", position(100, 0), None, "1", "old"),
        ("update_after", position(100, 0), None, "1", "old"),
    ]


@pytest.mark.parametrize(("large", "unsent", "sent"), [("new", None, "new"), ("...", ["large"], None)])
def test_a_key_that_is_sent_because_it_is_stored_apart_has_not_moved(
    tmp_path: Path, large: str, unsent: Any, sent: Any
) -> None:
    changed = update(values("...", large), b"K" + values("1", None))
    _, rows = recorded(tmp_path, transaction(100, relation("id", "large"), changed))
    assert rows == [("update_after", position(100, 0), unsent, "1", sent)]


def test_tables_that_are_not_read_leave_no_trace(tmp_path: Path) -> None:
    messages = transaction(100, relation("id", id=9, table="others"), insert("1", id=9))
    recorder, rows = recorded(tmp_path, messages)
    assert (rows, recorder.rows, recorder.end) == ([], 0, 108)


def test_a_new_column_begins_a_new_file_and_is_told_once(tmp_path: Path) -> None:
    wider = relation("id", "large", "note")
    messages = transaction(100, relation("id", "large"), insert("1", "a"), wider, insert("2", "b", "c"), wider)
    recorder, rows = recorded(tmp_path, messages)
    assert [row[3:] for row in rows] == [("1", "a"), ("2", "b")]
    assert recorder.altered == {"public.orders": ("note",)}


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (relation("id", "large", table="orders_old"), "was renamed to public.orders_old"),
        (relation("id", "large", id=2), "was dropped; a different table now has its name"),
        (relation("id", "large", key=("large",)), r"rows are now identified by \(large\) instead of \(id\)"),
        (relation("id", "large", key=(), identity="n"), r"rows are now identified by nothing instead of \(id\)"),
        (relation("id", "large", identity="f"), r"rows are now identified by the whole row instead of \(id\)"),
    ],
    ids=["renamed", "made anew", "another key", "no key", "whole rows"],
)
@pytest.mark.parametrize("before", [[], [relation("id", "large"), insert("1", "a")]], ids=["at once", "later"])
def test_a_table_that_is_no_longer_the_one_that_was_followed_is_an_error(
    tmp_path: Path, now: bytes, words: str, before: list[bytes]
) -> None:
    with pytest.raises(HeadraceError, match=words) as raised:
        recorded(tmp_path, transaction(100, *before, now))
    assert raised.value.id == "SCHEMA_CHANGED"


def test_a_table_that_logs_whole_rows_stays_the_same_whatever_its_key_is_there(tmp_path: Path) -> None:
    whole = replace(ORDERS, whole=True)
    messages = transaction(100, relation("id", "large", identity="f"), insert("1", "a"))
    assert recorded(tmp_path, messages, table=whole)[0].rows == 1
    with pytest.raises(HeadraceError, match=r"rows are now identified by \(id\) instead of the whole row"):
        recorded(tmp_path, transaction(200, relation("id", "large")), table=whole)


def test_a_truncate_is_told_with_its_position(tmp_path: Path) -> None:
    emptied = truncate()
    recorder, _ = recorded(tmp_path, transaction(100, relation("id", "large"), insert("1", "a"), emptied))
    assert recorder.truncated == {"public.orders": position(100, 1)}


def test_a_transaction_larger_than_a_piece_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connectors.postgres.changes.change_log.PIECE_ROWS", 10)
    inserts = [insert(str(number), "x") for number in range(95)]
    _, rows = recorded(tmp_path, transaction(100, relation("id", "large"), *inserts))
    assert [row[3] for row in rows] == [str(number) for number in range(95)]
    assert len(list((tmp_path / "data").iterdir())) == 1


@pytest.mark.parametrize(
    "change",
    [
        insert("1"),
        insert("1", "a", "b"),
        update(values("1")),
        update(values("1", "a"), b"K" + values("1")),
        b"D" + struct.pack(">I", 1) + b"K" + values("1"),
        b"D" + struct.pack(">I", 1) + b"N",
    ],
)
def test_a_row_with_more_or_fewer_columns_than_its_table_is_refused(tmp_path: Path, change: bytes) -> None:
    with pytest.raises(HeadraceError, match=r"^\[CHANGES_UNREADABLE\] .* its table has 2"):
        recorded(tmp_path, transaction(100, relation("id", "large"), change))
