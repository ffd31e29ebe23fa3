"""The feed beside its server: whatever happens to it its flows are told, and the server keeps no more than it must."""

from __future__ import annotations

import errno
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from headrace.connectors.postgres.changes.catalogue import SourceColumn, SourceTable
from headrace.connectors.postgres.changes.change_log import ChangeLog, LogEntry, LogWriter
from headrace.connectors.postgres.changes.landing import read_metadata
from headrace.connectors.postgres.changes.replication import IDLE_BYTES, PASSED, ReplicationFeed, copied_entries
from headrace.connectors.postgres.changes.transactions import position
from headrace.errors import HeadraceError
from headrace.storage import sync_folder
from tests.unit.connectors.postgres.changes.scripted_slot import Slot, born, feed_of

TABLE = SourceTable(
    "public.t", (SourceColumn("id", 23, -1, "integer"), SourceColumn("x", 25, -1, "text")), ("id",), False, oid=7
)


@pytest.fixture
def slot(request: pytest.FixtureRequest) -> Slot:
    return Slot(*getattr(request, "param", ()))


@pytest.fixture
def feed(tmp_path: Path, slot: Slot) -> Iterator[ReplicationFeed]:
    """A feed whose snapshot is taken."""
    born(tmp_path, TABLE)
    feed = feed_of(slot, tmp_path, TABLE)
    feed.start()
    yield feed
    feed.stop()


def test_a_log_that_is_gone_though_flows_have_read_it_is_no_reason_for_another_snapshot(
    tmp_path: Path, slot: Slot
) -> None:
    feed = ReplicationFeed(slot, tmp_path, [TABLE.name], lambda log: None, tuple, lambda: True)  # type: ignore[arg-type]
    with pytest.raises(HeadraceError, match=r"\[CHECKPOINT_INCOMPLETE\].*its log is gone, and flows have read from it"):
        feed.start()
    assert read_metadata(tmp_path) is None
    assert slot.forgotten == []


def _inserted(text: bytes) -> list[bytes]:
    """The messages of a transaction that inserts a row with a text."""
    columns = b"\x01id\0" + struct.pack(">Ii", 23, -1) + b"\x00x\0" + struct.pack(">Ii", 25, -1)
    values = b"t" + struct.pack(">I", 1) + b"1" + b"t" + struct.pack(">I", len(text)) + text
    return [
        b"B" + struct.pack(">QqI", 20, 0, 5),
        b"R" + struct.pack(">I", 7) + b"public\0t\0d" + struct.pack(">H", 2) + columns,
        b"I" + struct.pack(">I", 7) + b"N" + struct.pack(">H", 2) + values,
        b"C\0" + struct.pack(">QQq", 20, 21, 0),
    ]


def _fails(*_: object) -> None:
    raise ValueError("it is poison")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda message: message[:-1], "[CHANGES_UNREADABLE] the slot returned a message of kind b'I' that is not"),
        (
            lambda message: message,
            "[SOURCE_FAILED] changes of slot 's' of db/shop cannot be logged (ValueError: ",
        ),
    ],
)
def test_what_cannot_be_taken_down_is_told_to_the_flows_and_not_forgotten_by_the_server(
    feed: ReplicationFeed,
    slot: Slot,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[bytes], bytes],
    told: str,
) -> None:
    begin, relation, inserted, commit = _inserted(b"x")
    if damage(inserted) == inserted:
        monkeypatch.setattr(LogWriter, "finish", _fails)
    slot.waiting = [begin, relation, damage(inserted), commit]
    until = time.monotonic() + 60
    while (failure := feed.failure) is None and time.monotonic() < until:
        time.sleep(0.02)
    assert failure is not None
    assert str(failure).startswith(told)
    assert ChangeLog(tmp_path / "log").next() == 1, "the snapshot's entry is the only one"
    assert slot.forgotten == [10]


def _logged(folder: Path) -> ChangeLog:
    """The log once the transaction of ``_inserted`` is in it."""
    log = ChangeLog(folder / "log")
    until = time.monotonic() + 60
    while log.next() < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert log.next() == 2
    return log


def test_an_entry_that_has_its_name_keeps_its_rows_whatever_fails_behind_that(
    feed: ReplicationFeed, slot: Slot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is named is passed over when it comes again, so its rows must be there."""
    failed: list[Path] = []

    def failing_once(folder: Path) -> None:
        if not failed and any(folder.glob("[0-9]*.json")):
            failed.append(folder)
            raise OSError(errno.EIO, "bad disk")
        sync_folder(folder)

    monkeypatch.setattr("headrace.checkpoint.storage.sync_folder", failing_once)
    slot.waiting = _inserted(b"x")
    entry = _logged(tmp_path).entry(1)
    until = time.monotonic() + 60
    while slot.forgotten[-1] != 21 and time.monotonic() < until:
        time.sleep(0.02)
    assert failed
    assert slot.forgotten[-1] == 21
    assert [pl.read_parquet(ChangeLog(tmp_path / "log").data(file))["1"].to_list() for file in entry.files] == [[b"x"]]


def test_a_full_disk_that_takes_no_sign_either_is_waited_for(tmp_path: Path, feed: ReplicationFeed, slot: Slot) -> None:
    feed.stop()
    full = threading.Event()
    full.set()

    class OutageMarker:
        def begin(self, reason: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def end(self) -> None:
            pass

    def clean(log: ChangeLog) -> None:
        if full.is_set() and threading.current_thread() is not threading.main_thread():
            raise OSError(errno.ENOSPC, "No space left on device")

    again = feed_of(slot, tmp_path, TABLE, clean, lambda: [OutageMarker()])
    again.start()
    time.sleep(1.5)
    full.clear()
    slot.waiting = _inserted(b"x")
    _logged(tmp_path)
    again.stop()


class Copied:
    """A server whose table has three rows."""

    def cursor(self) -> Copied:
        return self

    def copy(self, query: object) -> AbstractContextManager[Copied]:
        return nullcontext(self)

    def rows(self) -> Iterator[tuple[str | None, ...]]:
        return iter([("1", "x"), ("2", None), ("3", "y")])


def test_a_table_is_copied_into_as_many_entries_as_its_pieces_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.connectors.postgres.changes.change_log.PIECE_ROWS", 1)
    monkeypatch.setattr("headrace.connectors.postgres.changes.replication.PIECES_PER_ENTRY", 2)
    log = ChangeLog(tmp_path)
    log.create()
    copied = list(copied_entries(Copied(), TABLE, log, 4, LogEntry(last=9, end=10)))  # type: ignore[arg-type]
    files = [log.data(file) for entry in copied for file in entry.files]
    assert [file.name.partition("-")[0] for file in files] == ["000000000004", "000000000005"]
    assert [pl.read_parquet(file).select("kind", "place", "0", "1").rows() for file in files] == [
        [("insert", position(9, 0), b"1", b"x"), ("insert", position(9, 1), b"2", None)],
        [("insert", position(9, 2), b"3", b"y")],
    ]
    assert {(entry.last, entry.end) for entry in copied} == {(9, 10)}


class Full(BytesIO):
    """A file that no longer fits on its disk."""

    def close(self) -> None:
        super().close()
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_draft_that_no_longer_fits_on_the_disk_gives_back_what_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.connectors.postgres.changes.change_log.PIECE_ROWS", 1)
    log = ChangeLog(tmp_path / "log")
    log.create()
    writer = LogWriter(log, 0)
    for _ in range(2):
        writer.write("public.t", TABLE.columns, [("insert", "1", 0, 1, None, b"1", b"x")])
    (writing,) = writer._files
    stream, writing._stream = writing._stream, Full()
    writer.discard()
    stream.close()
    assert list(log.folder.rglob("*.parquet")) == []


@pytest.mark.parametrize("slot", [(11,), (10 + IDLE_BYTES,)], indirect=True)
def test_while_little_is_written_to_tables_that_are_not_read_the_server_is_left_alone(
    feed: ReplicationFeed, slot: Slot, tmp_path: Path
) -> None:
    assert slot.forgotten == [10], "what the snapshot has seen"
    assert not (tmp_path / "log" / PASSED).exists()
    assert ChangeLog(tmp_path / "log").next() == 1


@pytest.mark.parametrize("slot", [(11 + IDLE_BYTES,)], indirect=True)
def test_when_much_was_written_to_tables_that_are_not_read_the_server_may_forget_it(
    feed: ReplicationFeed, slot: Slot, tmp_path: Path
) -> None:
    assert slot.forgotten == [10, 11 + IDLE_BYTES]
    assert (tmp_path / "log" / PASSED).read_text() == str(11 + IDLE_BYTES)
    assert ChangeLog(tmp_path / "log").next() == 1, "nothing is logged of it"


@pytest.mark.parametrize("slot", [(11 + IDLE_BYTES,)], indirect=True)
def test_a_feed_that_begins_behind_what_the_server_has_forgotten_goes_on(
    feed: ReplicationFeed, slot: Slot, tmp_path: Path
) -> None:
    feed.stop()
    again = feed_of(slot, tmp_path, TABLE)
    again.start()
    again.stop()
    assert again.failure is None
