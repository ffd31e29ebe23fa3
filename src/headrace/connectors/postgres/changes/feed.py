"""Brings changes from the server into the log: they are on disk before the server may forget them."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from headrace.connectors.postgres.changes import snapshot
from headrace.connectors.postgres.changes.alterations import Altered
from headrace.connectors.postgres.changes.birth import Birth, birth_of, forget_failure, session_of, tell_failure
from headrace.connectors.postgres.changes.catalogue import Table
from headrace.connectors.postgres.changes.change_log import ChangeLog, Overtaken
from headrace.connectors.postgres.changes.draft import Draft
from headrace.connectors.postgres.changes.publication import check_followed, numbered, publish, published
from headrace.connectors.postgres.changes.recording import Recorder
from headrace.connectors.postgres.changes.server import Away
from headrace.connectors.postgres.changes.slot import Slot
from headrace.errors import HeadraceError
from headrace.outages import OutageMarker
from headrace.storage import write_durably

POLL_SECONDS = 0.2
RETRY_SECONDS = 1.0
IDLE_BYTES = 16 << 20
"""So much of the server's log may pass without a change of ours before it is told to forget it."""
PASSED = "passed"


class ChangesFeed:
    """Runs on the driver beside the flows; what has been committed before its start is logged when start returns."""

    def __init__(
        self,
        slot: Slot,
        folder: Path,
        find_tables: Callable[[psycopg.Connection[Any]], Sequence[Table]],
        clean: Callable[[ChangeLog], None],
        outage_markers: Callable[[], Sequence[OutageMarker]] = tuple,
    ) -> None:
        self._slot = slot
        self._folder = folder
        self._find_tables = find_tables
        self._clean = clean
        self._outage_markers = outage_markers
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._work, name=f"headrace-{slot.name}", daemon=True)
        self._connection: psycopg.Connection[Any] | None = None

    def start(self) -> None:
        """Take the snapshot unless it is there, log what is waiting, and go on in the background."""
        forget_failure(self._folder)
        self._session = session_of(self._folder, self._slot.name)
        try:
            connection = self._open()
            self._birth, self._log = self._born(connection)
            snapshot.show_snapshot(self._log)
            self._check_slot(connection)
            if not all(table.oid for table in self._birth.tables):
                self._birth = numbered(connection, self._slot, self._birth)
                self._birth.write(self._folder)
            self._slot.advance(connection, self._log.last().end)
            target = self._slot.written(connection)
            while self._take(connection) < target and not self._stopping.is_set():
                pass
            self.check_followed(connection)
        except Altered as problem:
            # What was logged before is still read; behind it the flows are told.
            self._close()
            tell_failure(self._folder, problem)
            return
        except BaseException as problem:
            self._close()
            raise self._slot.server.told(problem) from None
        self._worker.start()

    def stop(self) -> None:
        """Finish what is being logged, and leave; the server keeps what comes from now on."""
        self._stopping.set()
        if self._worker.is_alive():
            self._worker.join()
        self._close()

    def _open(self) -> psycopg.Connection[Any]:
        self._connection = self._slot.server.connect(self._session)
        self._slot.lock(self._connection, self._session)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _born(self, connection: psycopg.Connection[Any]) -> tuple[Birth, ChangeLog]:
        birth = birth_of(self._folder)
        if birth is not None and snapshot.is_taken(log := ChangeLog(self._folder / birth.log)):
            return birth, log
        if birth is not None:
            # A crash before the snapshot was whole: nobody has seen anything of it yet.
            self._slot.drop(connection)
            shutil.rmtree(self._folder / birth.log, ignore_errors=True)
        elif self._slot.confirmed(connection) is not None:
            raise HeadraceError(
                "SLOT_TAKEN",
                f"{self._slot!r} was not made for this checkpoint; what its reader has taken would be missing here. "
                f"Choose another name (slot='...'), or, if nobody needs it any more, drop it: "
                f"SELECT pg_drop_replication_slot('{self._slot.name}').",
            )
        tables = tuple(self._find_tables(connection))
        publish(connection, self._slot, tables)
        birth = Birth(
            self._slot.name,
            self._slot.publication,
            uuid.uuid4().hex[:12],
            tables,
            published(connection, self._slot, tables),
        )
        log = ChangeLog(self._folder / birth.log)
        log.create()
        birth.write(self._folder)
        try:
            snapshot.take_snapshot(self._slot, self._session, tables, log)
        except BaseException:
            # Nobody would read from the slot, and the server would keep everything for it.
            with suppress(psycopg.Error):
                self._slot.drop(connection)
            raise
        return birth, log

    def _check_slot(self, connection: psycopg.Connection[Any]) -> None:
        confirmed = self._slot.confirmed(connection)
        if confirmed is None or confirmed > self._reached():
            raise HeadraceError(
                "SLOT_LOST",
                f"{self._slot!r} {'is gone' if confirmed is None else 'was read by another program'}, so changes after "
                "those in the log may be missing. Start with a new checkpoint, which begins with a new snapshot.",
            )

    def _reached(self) -> int:
        passed = self._log.folder / PASSED
        return max(self._log.last().end, int(passed.read_text()) if passed.exists() else 0)

    def _take(self, connection: psycopg.Connection[Any]) -> int:
        """Log what is waiting and let the server forget it; how far its log has been read."""
        upto = self._slot.written(connection)
        draft = Draft(self._log, self._log.next())
        recorder = Recorder(self._birth.by_name, self._log.last(), draft)
        try:
            recorder.record(self._slot.messages(connection, upto))
            entry = recorder.entry()
            if entry is not None:
                draft.publish(entry)
        except Overtaken:
            # By a driver that does not yet know that it was replaced; what it has logged is passed over next time.
            draft.discard()
            return 0
        except BaseException:
            # What has its name is read already, though the name was not yet made to stay.
            if self._log.next() <= draft.number:
                draft.discard()
            raise
        if entry is not None:
            self.logged()
        # Without a transaction all that was written is of no interest, and may be forgotten when it is much.
        end = recorder.end or (upto if upto - self._reached() > IDLE_BYTES else 0)
        if end:
            # The catalogue is as it is behind all that has been read: what was left out until then is noticed here.
            self.check_followed(connection)
        if end > self._reached():
            write_durably(self._log.folder / PASSED, str(end))
        if end:
            self._slot.advance(connection, end)
        self._clean(self._log)
        return recorder.end or upto

    def logged(self) -> None:
        """What has come is in the log, and the server does not know it yet."""

    def check_followed(self, connection: psycopg.Connection[Any]) -> None:
        """Nothing has been left out of what came: only then the server may forget."""
        check_followed(connection, self._slot, self._birth)

    def _work(self) -> None:
        connection = self._connection
        while not self._stopping.is_set():
            try:
                if connection is None:
                    connection = self._open()
                    self._check_slot(connection)
                    self._go_on()
                began = self._slot.written(connection)
                if self._take(connection) >= began:
                    self._stopping.wait(POLL_SECONDS)
            # A feed that ended without a word would let its flows wait for ever, and the server's disk fill.
            except Exception as problem:
                connection = None
                self._close()
                self._stumble(problem)

    def _stumble(self, problem: Exception) -> None:
        """Wait for what passes by itself; say to the flows what does not."""
        meaning = self._meaning(problem)
        # A full disk has no room for a marker either. Then there is none, and all is tried again.
        with suppress(OSError):
            if isinstance(meaning, HeadraceError):
                tell_failure(self._folder, meaning)
                self._stopping.set()
            else:
                for marker in self._outage_markers():
                    marker.begin(str(meaning))
        self._stopping.wait(RETRY_SECONDS)

    def _meaning(self, problem: Exception) -> Exception:
        if isinstance(problem, psycopg.Error):
            return self._slot.server.meaning(problem)
        if isinstance(problem, (OSError, HeadraceError, Away)):
            return problem
        return HeadraceError(
            "SOURCE_FAILED",
            f"what slot {self._slot.name!r} of {self._slot.server.address} gives cannot be taken down "
            f"({type(problem).__name__}: {problem}). Nothing is lost: the server keeps all that has not been logged. "
            "Mend the value or the table that it names, then start again.",
        )

    def _go_on(self) -> None:
        for marker in self._outage_markers():
            marker.end()
