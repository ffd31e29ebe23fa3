"""The log: entries once and in order, and how long they stay."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.postgres.changes.catalogue import SourceColumn
from headrace.connectors.postgres.changes.change_log import HEAD, ChangeLog, LogEntry, LogWriter, Row
from headrace.connectors.postgres.changes.landing import Retention, first_unread
from headrace.event_time.record import BatchLog, BatchOutcome, BatchRecord, SourceRead

ID = (SourceColumn("id", 23, -1, "integer"),)


def rows(*ids: str) -> list[Row]:
    return [(*[None] * len(HEAD), id) for id in ids]


def filled(folder: Path, entries: int) -> ChangeLog:
    log = ChangeLog(folder)
    log.create()
    for number in range(entries):
        writer = LogWriter(log, number)
        writer.write("public.orders", ID, rows(str(number)))
        writer.publish(LogEntry(last=number, end=number + 1))
    return log


def flow_at(folder: Path, entry: int, source: str = "orders") -> Path:
    """A flow whose last finished batch has read up to an entry, and which has begun another."""
    log = BatchLog(LocalStorage(folder))
    log.take_over()
    log.write_outcome(BatchOutcome(3, positions={source: entry}))
    read = SourceRead(entry, entry + 1)
    log.write_record(BatchRecord(4, 0, {}, {}, {}, drain=False, reads={source: read}))
    return folder


def test_an_entry_has_its_files_and_says_how_far_the_server_was_read(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    entry = log.entry(2)
    assert (log.first(), log.next(), entry.last, entry.end) == (0, 3, 2, 3)
    (file,) = entry.files
    assert (file.table, file.columns, file.rows) == ("public.orders", ID, 1)
    assert pl.read_parquet(log.data(file))["0"].to_list() == [b"2"]


def test_the_second_of_two_writers_of_an_entry_is_told(tmp_path: Path) -> None:
    log = filled(tmp_path, 2)
    drafts = [LogWriter(log, 2), LogWriter(log, 2)]
    for number, writer in enumerate(drafts):
        writer.write("public.orders", ID, rows(f"writer {number}"))
    assert [draft.publish(LogEntry(last=9, end=10)) for draft in drafts] == [True, False]
    (file,) = log.entry(2).files
    assert pl.read_parquet(log.data(file))["0"].to_list() == [b"writer 0"]


def test_old_entries_leave_when_every_flow_has_read_them_but_never_the_newest(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 6)
    now = log.entry(5).logged_at + 10
    flows = [(flow_at(tmp_path / "one", 4), "orders"), (flow_at(tmp_path / "two", 2), "orders")]
    Retention(1, lambda: flows).remove(log, now=now)
    assert (log.first(), log.next()) == (2, 6)
    Retention(1_000_000_000, lambda: flows[:1]).remove(log, now=now)
    assert log.first() == 2
    Retention(1, lambda: [(flow_at(tmp_path / "one", 6), "orders")]).remove(log, now=now)
    assert (log.first(), log.next()) == (5, 6)
    assert len(list((tmp_path / "log" / "data").iterdir())) == 1


def test_a_log_that_is_too_large_loses_its_oldest_entries_as_far_as_every_flow_has_read(tmp_path: Path) -> None:
    log = filled(tmp_path, 6)
    one = log.size(5)
    flows = [(flow_at(tmp_path / "one", 3), "orders"), (flow_at(tmp_path / "two", 5), "orders")]
    kept = Retention(None, lambda: flows, size=4 * one)
    kept.remove(log, now=0)
    assert log.first() == 2
    Retention(None, lambda: flows, size=1).remove(log, now=0)
    assert log.first() == 3
    Retention(None, lambda: [(flow_at(tmp_path / "one", 6), "orders")], size=1).remove(log, now=0)
    assert (log.first(), log.next()) == (5, 6)


def test_entries_that_come_and_go_are_counted_in_the_size_of_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path, 4)
    kept = Retention(None, lambda: [(flow_at(tmp_path / "one", 100), "orders")], size=4 * log.size(3))
    firsts = []
    for number in range(4, 10):
        kept.remove(log, now=0)
        firsts.append(log.first())
        writer = LogWriter(log, number)
        writer.write("public.orders", ID, rows(str(number)))
        writer.publish(LogEntry(last=number, end=number + 1))
    assert firsts == [0, 1, 2, 3, 4, 5]


def test_a_log_within_its_size_still_loses_what_is_too_old(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    kept = Retention(1, lambda: [(flow_at(tmp_path / "one", 3), "orders")], size=1 << 30)
    kept.remove(log, now=log.entry(2).logged_at + 10)
    assert log.first() == 2


def test_the_size_of_an_entry_is_that_of_its_files_as_far_as_they_are_there(tmp_path: Path) -> None:
    log = filled(tmp_path, 1)
    (file,) = log.entry(0).files
    data, whole = log.data(file).stat().st_size, log.size(0)
    log.data(file).unlink()
    assert log.size(0) == whole - data > 0


def test_a_flow_that_has_not_finished_a_batch_needs_everything(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 3)
    Retention(1, lambda: [(tmp_path / "new", "orders")]).remove(log, now=log.entry(2).logged_at + 10)
    assert log.first() == 0
    assert first_unread(flow_at(tmp_path / "flow", 2), "another source") == 0


def test_a_thousand_entries_later_the_first_folder_is_gone(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 1)
    for number in range(1, 1002):
        log.publish(number, log.entry(0))
    assert log.next() == 1002
    flow = flow_at(tmp_path / "flow", 1002)
    Retention(1, lambda: [(flow, "orders")]).remove(log, now=log.entry(0).logged_at + 10)
    assert (log.first(), log.next()) == (1001, 1002)
    assert [folder.name for folder in (tmp_path / "log" / "entries").iterdir()] == ["000000001"]
