"""A slot without a server, which gives the messages that a test wants, and a feed of it whose snapshot is taken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.connectors.postgres.changes.catalogue import SourceTable
from headrace.connectors.postgres.changes.change_log import ChangeLog, LogEntry
from headrace.connectors.postgres.changes.landing import LandingMetadata
from headrace.connectors.postgres.changes.replication import SNAPSHOT, ReplicationFeed
from tests.unit.connectors.postgres.changes.messages import transaction


class Server:
    """A server that can be reached."""

    address = "db/shop"
    place = "PostgreSQL db/shop"

    def connect_for_changes(self, session: str) -> Any:
        return self

    def close(self) -> None:
        pass


class Slot:
    """A slot that gives the messages it is told to."""

    name = publication = "s"
    server = Server()

    def __init__(self, end_of_log: int = 30) -> None:
        self.end_of_log = end_of_log
        self.waiting: list[bytes] = []
        self.forgotten: list[int] = []

    def commit(self, lsn: int, *messages: bytes) -> None:
        """Have one transaction waiting, with which the server's log ends."""
        self.waiting, self.end_of_log = transaction(lsn, *messages), lsn + 8

    def lock(self, connection: Any, session: str) -> None:
        pass

    def confirmed(self, connection: Any) -> int:
        return max(self.forgotten, default=10)

    def advance(self, connection: Any, end: int) -> None:
        self.forgotten.append(end)

    def written(self, connection: Any) -> int:
        return self.end_of_log

    def check_published(self, connection: Any, metadata: LandingMetadata) -> None:
        """There is no catalogue to look into."""

    def messages(self, connection: Any, upto: int) -> Iterator[bytes]:
        return iter(self.waiting)


def born(folder: Path, table: SourceTable) -> ChangeLog:
    """A landing folder with the snapshot of a table, which was empty."""
    LandingMetadata("s", "s", "log", (table,), ()).write(folder)
    log = ChangeLog(folder / "log")
    log.create()
    (log.folder / SNAPSHOT).write_text(json.dumps([asdict(LogEntry(last=9, end=10, logged_at=0))]))
    return log


def feed_of(
    slot: Slot,
    folder: Path,
    table: SourceTable,
    clean: Callable[[ChangeLog], None] = lambda log: None,
    outage_markers: Callable[[], Sequence[Any]] = tuple,
) -> ReplicationFeed:
    """A feed that has yet to begin."""
    return ReplicationFeed(slot, folder, [table.name], clean, outage_markers)  # type: ignore[arg-type]
