"""How far a batch reads the log, and its entries as rows."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.changelog import OnTruncate
from headrace.connectors.base.decoding import POSITION as ROW
from headrace.connectors.base.enumerator import Planned
from headrace.connectors.postgres.changes.catalogue import SourceColumn, SourceTable
from headrace.connectors.postgres.changes.change_log import ChangeLog, LogEntry, LogWriter
from headrace.connectors.postgres.changes.landing import LandingMetadata
from headrace.connectors.postgres.changes.log_reader import ChangeLogEnumerator, ChangeLogReader
from headrace.connectors.postgres.changes.text_values import parse_values
from headrace.connectors.postgres.changes.transactions import position
from headrace.errors import HeadraceError
from headrace.event_time.tracker import WHOLE

ID, NOTE, MORE = (
    SourceColumn("id", 23, -1, "integer"),
    SourceColumn("note", 25, -1, "text"),
    SourceColumn("more", 25, -1, "text"),
)


def logged(
    folder: Path, *pieces: tuple[tuple[SourceColumn, ...], list[tuple[bytes, ...]]], truncated: bool = False
) -> None:
    """A log with one entry: rows of a table that had these columns and then others."""
    orders = SourceTable("public.orders", (ID,), ("id",), whole=False, oid=1)
    LandingMetadata("shop", "shop", "log", (orders,), ()).write(folder)
    log = ChangeLog(folder / "log")
    log.create()
    writer = LogWriter(log, 0)
    for number, (columns, rows) in enumerate(pieces):
        placed: list[tuple[object, ...]] = [
            ("insert", position(number, index), 0, 1, None, *row) for index, row in enumerate(rows)
        ]
        writer.write("public.orders", columns, placed)
    emptied = {"public.orders": position(9, 0)} if truncated else {}
    added = [column.name for columns, _ in pieces for column in columns if column is not ID]
    writer.publish(LogEntry(truncated=emptied, altered={"public.orders": added}, last=9, end=10))


def found(folder: Path, on_truncate: OnTruncate = "dead_letter") -> tuple[list[Any], list[Any]]:
    """Rows and dead letters of the entry, each with the place where it was read."""
    reader = ChangeLogReader(folder, "public.orders", {"id": pl.Int32()}, on_truncate)
    arrived = list(reader.read([(0, 1)], None))  # type: ignore[arg-type]
    assert {each.origin for each in arrived} == {"public.orders entry 0"}
    rows = pl.concat(each.rows for each in arrived)
    dead = pl.concat(each.dead for each in arrived)
    return rows.select("__position", "id").rows(), dead.select("position", "reason").rows()


def test_rows_and_dead_letters_of_an_entry_all_have_places_of_their_own(tmp_path: Path) -> None:
    logged(
        tmp_path,
        ((ID,), [(b"1",), (b"x",)]),
        ((ID, NOTE), [(b"y", b""), (b"2", b""), (b"3", b"")]),
        ((ID, NOTE, MORE), [(b"z", b"", b"")]),
        truncated=True,
    )
    rows, dead = found(tmp_path)
    assert rows == [(0, 1), (3, 2), (4, 3)]
    assert sorted(dead) == [
        (1, "WRONG_TYPE"),
        (2, "WRONG_TYPE"),
        (5, "WRONG_TYPE"),
        (6, "COLUMN_ADDED"),
        (7, "TABLE_TRUNCATED"),
    ]


def test_a_value_that_does_not_fit_is_a_dead_letter_and_nan_in_a_decimal_column_is_null(tmp_path: Path) -> None:
    logged(tmp_path, ((ID, NOTE), [(b"1", b"NaN"), (b"2", b"0.5"), (b"3", b"0.55")]))
    orders = SourceTable("public.orders", (ID, NOTE), ("id",), whole=False, oid=1)
    LandingMetadata("shop", "shop", "log", (orders,), ()).write(tmp_path)
    columns = {"note": pl.Decimal(3, 1), "id": pl.Int32()}
    reader = ChangeLogReader(tmp_path, "public.orders", columns, "stop")
    read = next(reader.read([(0, 1)], None))  # type: ignore[arg-type]
    assert read.rows.select("id", "note", "change").rows() == [(1, None, "insert"), (2, Decimal("0.5"), "insert")]
    [letter] = read.dead.rows(named=True)
    assert (letter["position"], letter["reason"]) == (2, "WRONG_TYPE")
    assert letter["detail"] == 'column note is DECIMAL(3,1), found "0.55"'
    assert b'"note": "0.55"' in letter["raw"]


def test_a_row_whose_values_cannot_be_decoded_is_alone_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(texts: pl.Series, kind: pl.DataType) -> pl.Series:
        if "3" in texts.to_list():
            raise pl.exceptions.PanicException("it is poison")
        return parse_values(texts, kind)

    monkeypatch.setattr("headrace.connectors.postgres.changes.log_reader.parse_values", parse)
    logged(tmp_path, ((ID,), [(b"1",), (b"2",)]), ((ID, NOTE), [(b"3", b"poison"), (b"4", b""), (b"x", b"")]))
    rows, dead = found(tmp_path)
    assert rows == [(0, 1), (1, 2), (3, 4)]
    assert dead == [(2, "UNDECODABLE"), (4, "WRONG_TYPE"), (5, "COLUMN_ADDED")]
    reader = ChangeLogReader(tmp_path, "public.orders", {"id": pl.Int32()}, "dead_letter")
    [raw] = [
        raw
        for each in reader.read([(0, 1)], None)  # type: ignore[arg-type]
        for raw in each.dead.filter(reason="UNDECODABLE")["raw"]
    ]
    assert json.loads(raw)["note"] == "poison"


def test_a_value_that_is_no_text_is_a_dead_letter_of_its_row(tmp_path: Path) -> None:
    logged(tmp_path, ((ID, NOTE), [(b"1", b"\xff"), (b"2", "ä".encode()), (b"x", b"\xfe")]))
    orders = SourceTable("public.orders", (ID, NOTE), ("id",), whole=False, oid=1)
    LandingMetadata("shop", "shop", "log", (orders,), ()).write(tmp_path)
    reader = ChangeLogReader(tmp_path, "public.orders", {"id": pl.Int32(), "note": pl.String()}, "stop")
    read = next(reader.read([(0, 1)], None))  # type: ignore[arg-type]
    assert read.rows.select("id", "note", ROW).rows() == [(2, "ä", 1)]
    assert read.dead.select("position", "reason", "detail").rows() == [
        (0, "NOT_UTF8", "column note holds bytes that are not UTF-8"),
        (2, "NOT_UTF8", "column note holds bytes that are not UTF-8"),
    ]
    assert json.loads(read.dead["raw"][0])["note"] == "\\xff"


def test_places_go_on_where_a_file_is_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connectors.postgres.changes.log_reader.ROWS_AT_ONCE", 2)
    logged(tmp_path, ((ID,), [(b"1",), (b"2",), (b"3",)]), ((ID, NOTE), [(b"4", b""), (b"5", b""), (b"6", b"")]))
    assert found(tmp_path) == ([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)], [(6, "COLUMN_ADDED")])


def test_a_truncated_table_stops_the_flow_unless_the_author_wants_a_dead_letter(tmp_path: Path) -> None:
    logged(tmp_path, ((ID,), [(b"1",)]), truncated=True)
    assert found(tmp_path) == ([(0, 1)], [(1, "TABLE_TRUNCATED")])
    with pytest.raises(HeadraceError, match=rf"\[TABLE_TRUNCATED\] .* at {position(9, 0)}, "):
        found(tmp_path, "stop")


@pytest.fixture
def enumerator(tmp_path: Path) -> ChangeLogEnumerator:
    """Of a log with three entries, whose feed has given up."""
    LandingMetadata("shop", "shop", "log", (), ()).write(tmp_path)
    log = ChangeLog(tmp_path / "log")
    log.create()
    for number in range(3):
        log.publish(number, LogEntry())
    failure = HeadraceError("SLOT_LOST", "the slot is gone.")
    return ChangeLogEnumerator("public.orders", tmp_path, lambda: failure)


@pytest.mark.parametrize("first", [0, 2])
def test_what_was_logged_before_the_feed_gave_up_is_read_and_then_the_flow_is_told(
    enumerator: ChangeLogEnumerator, first: int
) -> None:
    assert enumerator.plan(first, most=None).until == 3
    with pytest.raises(HeadraceError, match=r"^\[SLOT_LOST\] the slot is gone\.$"):
        enumerator.plan(3, most=None)


def test_the_flow_is_not_told_before_the_entries_that_it_takes_one_by_one(
    enumerator: ChangeLogEnumerator,
) -> None:
    for number in range(3):
        assert enumerator.plan(number, most=0).until == number + 1
    with pytest.raises(HeadraceError, match="SLOT_LOST"):
        enumerator.plan(3, most=None)


@pytest.mark.usefixtures("enumerator")
def test_a_feed_that_goes_on_gives_no_more_than_there_is(tmp_path: Path) -> None:
    assert ChangeLogEnumerator("public.orders", tmp_path).plan(3, most=None).until == 3


def test_a_log_that_is_older_than_what_a_flow_has_read_is_refused(tmp_path: Path) -> None:
    logged(tmp_path, ((ID,), [(b"1",)]))
    enumerator = ChangeLogEnumerator("public.orders", tmp_path)
    assert enumerator.plan(1, most=None) == Planned(1)
    with pytest.raises(
        HeadraceError, match=r"\[CHECKPOINT_INCOMPLETE\].*a flow has read 2 entries of its log, and 1 are"
    ):
        enumerator.plan(2, most=None)


@pytest.mark.parametrize(
    "turn", [LogEntry(altered={"public.orders": ()}), LogEntry(truncated={"public.orders": "0/1"})]
)
def test_what_was_logged_before_a_table_was_altered_or_emptied_is_a_batch_of_its_own(
    enumerator: ChangeLogEnumerator, tmp_path: Path, turn: LogEntry
) -> None:
    log = ChangeLog(tmp_path / "log")
    for number, entry in enumerate([turn, LogEntry(), LogEntry(altered={"public.others": ()})], start=3):
        log.publish(number, entry)
    assert enumerator.plan(0, most=None).until == 3
    assert enumerator.plan(3, most=None).until == 6


def test_a_flow_that_comes_back_after_its_entries_were_removed_is_told_so(
    enumerator: ChangeLogEnumerator, tmp_path: Path
) -> None:
    """It was left out of the pipeline meanwhile, so retention did not wait for it."""
    log = ChangeLog(tmp_path / "log")
    log.remove(0)
    log.remove(1)
    with pytest.raises(HeadraceError, match=r"^\[LOG_SHORTENED\] .* entry 1, .*public\.orders"):
        enumerator.plan(1, most=None)
    with pytest.raises(HeadraceError, match=r"^\[LOG_SHORTENED\] .* entry 1, .*public\.orders"):
        enumerator.splits(1, 3, tasks=2)
    assert enumerator.plan(2, most=None).until == 3


def test_a_batch_takes_so_many_rows_in_whole_entries_and_says_how_many_wait(tmp_path: Path) -> None:
    logged(tmp_path, ((ID,), [(b"1",), (b"2",)]))
    for number in (1, 2, 3):
        publish(tmp_path, number, rows=number)
    enumerator = ChangeLogEnumerator("public.orders", tmp_path)
    assert enumerator.plan(0, most=3) == Planned(2, {WHOLE: 5})
    assert enumerator.plan(2, most=3) == Planned(4)
    publish(tmp_path, 4, rows=4)
    assert enumerator.plan(2, most=1) == Planned(3, {WHOLE: 7})


def test_entries_that_wait_are_read_once_however_often_a_batch_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(tmp_path, ((ID,), [(b"1",)]))
    for number in range(1, 6):
        publish(tmp_path, number, rows=1)
    read: list[int] = []
    entry = ChangeLog.entry

    def noted(log: ChangeLog, number: int) -> LogEntry:
        read.append(number)
        return entry(log, number)

    monkeypatch.setattr(ChangeLog, "entry", noted)
    enumerator = ChangeLogEnumerator("public.orders", tmp_path)
    for number in range(6):
        assert enumerator.plan(number, most=1).until == number + 1
    assert read == [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5]


def test_an_entry_without_rows_waits_too(tmp_path: Path) -> None:
    logged(tmp_path, ((ID,), [(b"1",)]))
    publish(tmp_path, 1, rows=0)
    assert ChangeLogEnumerator("public.orders", tmp_path).plan(0, most=1) == Planned(1, {WHOLE: 1})


def test_a_run_over_what_is_there_reads_no_entry_that_was_logged_later(tmp_path: Path) -> None:
    logged(tmp_path, ((ID,), [(b"1",)]))
    enumerator = ChangeLogEnumerator("public.orders", tmp_path)
    enumerator.stop_at_newest()
    publish(tmp_path, 1, rows=1)
    assert enumerator.plan(0, most=None) == Planned(1)
    assert enumerator.plan(1, most=None) == Planned(1)


def test_tasks_share_the_rows_of_a_batch_in_order(tmp_path: Path) -> None:
    logged(tmp_path, ((ID,), [(b"1",)] * 4))
    for number in (1, 2, 3):
        publish(tmp_path, number, rows=2)
    splits = ChangeLogEnumerator("public.orders", tmp_path).splits(0, 4, tasks=2)
    assert splits == [[(0, 1)], [(1, 4)]]


def publish(folder: Path, number: int, *, rows: int) -> None:
    """One more entry of the log, with so many rows."""
    log = ChangeLog(folder / "log")
    writer = LogWriter(log, number)
    writer.write("public.orders", (ID,), [("insert", position(number, row), 0, 1, None, b"1") for row in range(rows)])
    writer.publish(LogEntry(last=9, end=10))
