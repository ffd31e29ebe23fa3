"""The feed: copies tables, then changes from the slot into the change log, before the server may discard them."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

import psycopg
from psycopg import sql

from headrace.changelog import INSERT
from headrace.checkpoint.outages import OutageMarker
from headrace.checkpoint.storage import incomplete
from headrace.connectors.postgres.changes.catalogue import SourceTable, TableAltered, find_table, split_name
from headrace.connectors.postgres.changes.change_log import ChangeLog, LogEntry, LogWriter
from headrace.connectors.postgres.changes.landing import LandingMetadata, read_metadata, session_name
from headrace.connectors.postgres.changes.slot import ReplicationSlot
from headrace.connectors.postgres.changes.transactions import TransactionRecorder, position
from headrace.connectors.postgres.connection import PgConnection, server_error, startup_error
from headrace.errors import HeadraceError
from headrace.json_codec import decode
from headrace.storage import write_durably

POLL_SECONDS = 0.2
RETRY_SECONDS = 1.0
IDLE_BYTES = 16 << 20
"""How much WAL without changes of our tables may pass before the slot is advanced over it."""
PASSED, SNAPSHOT = "passed", "snapshot.json"
PIECES_PER_ENTRY = 10


class ReplicationFeed:
    """Runs on the driver beside the flows. When ``start`` returns, everything committed before it is logged."""

    def __init__(
        self,
        slot: ReplicationSlot,
        folder: Path,
        tables: Sequence[str],
        clean: Callable[[ChangeLog], None],
        outage_markers: Callable[[], Sequence[OutageMarker]] = tuple,
        was_read: Callable[[], bool] = lambda: False,
    ) -> None:
        self._slot, self._folder, self._tables = slot, folder, tables
        self._clean, self._outage_markers, self._was_read = clean, outage_markers, was_read
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._work, name=f"headrace-{slot.name}", daemon=True)
        self._connection: PgConnection | None = None
        self.failure: HeadraceError | None = None
        """Why nothing more will come."""

    def start(self) -> None:
        """Take the snapshot if there is none, log what is waiting, and go on in the background."""
        self._session = session_name(self._folder, self._slot.name)
        try:
            connection = self._open()
            self._metadata, self._log = self._open_log(connection)
            self._publish_snapshot()
            self._check_slot(connection)
            self._slot.advance(connection, self._log.last().end)
            target = self._slot.written(connection)
            while self._take(connection) < target and not self._stopping.is_set():
                pass
            self._slot.check_published(connection, self._metadata)
        except BaseException as problem:
            self._close()
            if not isinstance(problem, TableAltered):
                raise startup_error(problem, self._slot.server) from None
            # The flows read what was logged before, and get the error after it.
            self.failure = problem
        else:
            self._worker.start()

    def stop(self) -> None:
        """Finish the entry that is being logged; the server keeps what comes after it."""
        self._stopping.set()
        if self._worker.is_alive():
            self._worker.join()
        self._close()

    def _open(self) -> PgConnection:
        self._connection = self._slot.server.connect_for_changes(self._session)
        self._slot.lock(self._connection, self._session)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _open_log(self, connection: PgConnection) -> tuple[LandingMetadata, ChangeLog]:
        """The log with its snapshot, which is taken at the first start."""
        metadata = read_metadata(self._folder)
        if metadata is not None:
            log = ChangeLog(self._folder / metadata.log)
            if (log.folder / SNAPSHOT).exists():
                return metadata, log
        if self._was_read():
            raise incomplete(self._folder, "its log is gone, and flows have read from it")
        if metadata is not None:
            # A crash interrupted the snapshot, and nothing of it is visible yet.
            self._slot.drop(connection)
            shutil.rmtree(self._folder / metadata.log, ignore_errors=True)
        elif self._slot.confirmed(connection) is not None:
            raise HeadraceError(
                "SLOT_TAKEN",
                f"{self._slot!r} was not made for this checkpoint, so changes would be missing. Choose another "
                f"slot='...', or drop it if nobody needs it: SELECT pg_drop_replication_slot('{self._slot.name}').",
            )
        tables = tuple(find_table(connection, name) for name in self._tables)
        self._slot.publish(connection, tables)
        oids = self._slot.published(connection, tables)
        metadata = LandingMetadata(self._slot.name, self._slot.publication, uuid.uuid4().hex[:12], tables, oids)
        log = ChangeLog(self._folder / metadata.log)
        log.create()
        metadata.write(self._folder)
        try:
            self._take_snapshot(tables, log)
        except BaseException:
            # Nobody would read the slot, and the server would keep all its WAL for it.
            with suppress(psycopg.Error):
                self._slot.drop(connection)
            raise
        return metadata, log

    def _take_snapshot(self, tables: Sequence[SourceTable], log: ChangeLog) -> None:
        """Create the slot and copy the tables exactly as they are at that moment.

        The slot's first change belongs to the first transaction that the exported snapshot does not see: no gap and no
        overlap. Nothing of the snapshot is visible before all of it is there.
        """
        with self._slot.server.connect_for_changes(self._session) as reader:
            # Read before the slot is created: every change in the slot was committed later.
            began = int(reader.execute("select extract(epoch from clock_timestamp()) * 1000000").fetchall()[0][0])
            holder, start, name = self._slot.create(self._session)
            entries: list[LogEntry] = []
            with holder:
                reader.execute("begin transaction isolation level repeatable read, read only")
                reader.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(name)))
                # One byte before the slot begins, so before every change.
                empty = LogEntry(last=start - 1, end=start, logged_at=began)
                for table in tables:
                    entries.extend(copied_entries(reader, table, log, len(entries), empty))
        entries = entries or [empty]
        write_durably(log.folder / SNAPSHOT, json.dumps([asdict(entry) for entry in entries]))

    def _publish_snapshot(self) -> None:
        """Publish the entries of the snapshot, from where a crash may have interrupted it."""
        entries = json.loads((self._log.folder / SNAPSHOT).read_text(encoding="utf-8"))
        for number in range(self._log.next(), len(entries)):
            self._log.publish(number, decode(LogEntry, entries[number]))

    def _check_slot(self, connection: PgConnection) -> None:
        confirmed = self._slot.confirmed(connection)
        if confirmed is None or confirmed > self._reached():
            raise HeadraceError(
                "SLOT_LOST",
                f"{self._slot!r} {'is gone' if confirmed is None else 'was read by another program'}, so changes may "
                "be missing. Start with a new checkpoint, which begins with a new snapshot.",
            )

    def _reached(self) -> int:
        passed = self._log.folder / PASSED
        return max(self._log.last().end, int(passed.read_text()) if passed.exists() else 0)

    def _take(self, connection: PgConnection) -> int:
        """Log what is waiting and advance the slot; returns how far the WAL has been read."""
        upto = self._slot.written(connection)
        writer = LogWriter(self._log, self._log.next())
        recorder = TransactionRecorder(self._metadata.by_name, self._log.last(), writer)
        try:
            recorder.record(self._slot.messages(connection, upto))
            entry = recorder.entry()
            if entry is not None and not writer.publish(entry):
                # Written by a driver that was replaced and does not know it yet; next time its entry is skipped.
                writer.discard()
                return 0
        except BaseException:
            # An entry that is visible is read already, even if making it durable has failed.
            if self._log.next() <= writer.number:
                writer.discard()
            raise
        # Without a transaction of ours the WAL is skipped once it is much.
        end = recorder.end or (upto if upto - self._reached() > IDLE_BYTES else 0)
        if end:
            # Before anything may be discarded. The catalogue is newer than all that was read, so a gap shows here.
            self._slot.check_published(connection, self._metadata)
            if end > self._reached():
                write_durably(self._log.folder / PASSED, str(end))
            self._slot.advance(connection, end)
        self._clean(self._log)
        return recorder.end or upto

    def _work(self) -> None:
        connection = self._connection
        while not self._stopping.is_set():
            try:
                if connection is None:
                    connection = self._open()
                    self._check_slot(connection)
                    for marker in self._outage_markers():
                        marker.end()
                began = self._slot.written(connection)
                if self._take(connection) >= began:
                    self._stopping.wait(POLL_SECONDS)
            # A feed that ended silently would leave its flows waiting for ever, and fill the server's disk.
            except Exception as problem:
                connection = None
                self._close()
                self._handle(problem)

    def _handle(self, problem: Exception) -> None:
        """Wait after a transient error; report any other to the flows."""
        error = problem
        if isinstance(problem, psycopg.Error):
            error = server_error(problem, self._slot.server.place, "SOURCE")
        elif not isinstance(problem, OSError | HeadraceError):
            error = HeadraceError(
                "SOURCE_FAILED",
                f"changes of slot {self._slot.name!r} of {self._slot.server.address} cannot be logged "
                f"({type(problem).__name__}: {problem}). Nothing is lost. Correct the value or table that the message "
                "names, then start again.",
            )
        if isinstance(error, HeadraceError):
            self.failure = error
            self._stopping.set()
            return
        # On a full disk nothing can be written; then the feed just tries again.
        with suppress(OSError):
            for marker in self._outage_markers():
                marker.begin(str(error))
        self._stopping.wait(RETRY_SECONDS)


def copied_entries(
    reader: PgConnection, table: SourceTable, log: ChangeLog, number: int, empty: LogEntry
) -> Iterator[LogEntry]:
    """Copy a table into the files of entries from ``number`` on."""
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
    query = sql.SQL("copy (select {} from {}) to stdout").format(columns, sql.Identifier(*split_name(table.name)))
    with reader.cursor().copy(query) as copy:
        rows = enumerate(copy.rows())
        for first in rows:
            writer = LogWriter(log, number)
            for index, values in chain([first], rows):
                row = (INSERT, position(empty.last, index), empty.logged_at, None, None, *values)
                writer.write(table.name, table.columns, [row], sum(map(len, filter(None, values))))
                if writer.pieces == PIECES_PER_ENTRY:
                    break
            yield replace(empty, files=writer.finish())
            number += 1
