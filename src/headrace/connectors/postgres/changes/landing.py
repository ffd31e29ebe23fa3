"""The landing folder of a slot: its metadata, and how much of the change log is kept."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.postgres.changes.catalogue import SourceTable
from headrace.connectors.postgres.changes.change_log import ChangeLog
from headrace.event_time.record import BatchLog
from headrace.json_codec import decode
from headrace.storage import made_once, write_durably

METADATA_FILE, SESSION = "metadata.json", "session"
CLEANUP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LandingMetadata:
    """What a landing folder belongs to: a slot, its tables as they were, and the folder of the change log."""

    slot: str
    publication: str
    log: str
    """A new name each time a snapshot begins again, so that an earlier attempt cannot interfere."""
    tables: tuple[SourceTable, ...]
    published: tuple[int, ...]
    """The OIDs of the publication and its table entries; one that is created again has others."""

    def write(self, folder: Path) -> None:
        write_durably(folder / METADATA_FILE, json.dumps(asdict(self), indent=2))

    @property
    def by_name(self) -> dict[str, SourceTable]:
        return {table.name: table for table in self.tables}


def read_metadata(folder: Path) -> LandingMetadata | None:
    """The metadata of a landing folder, once a feed has begun there."""
    file = folder / METADATA_FILE
    if not file.exists():
        return None
    return decode(LandingMetadata, json.loads(file.read_text(encoding="utf-8")))


def open_log(folder: Path) -> tuple[LandingMetadata, ChangeLog]:
    """The metadata and the change log of a landing folder; a feed starts before any flow reads."""
    metadata = read_metadata(folder)
    assert metadata is not None
    return metadata, ChangeLog(folder / metadata.log)


def session_name(folder: Path, slot: str) -> str:
    """The application_name of this checkpoint's sessions, by which a later driver finds and ends those before it."""
    return f"headrace:{made_once(folder / SESSION, uuid.uuid4().hex[:12])}:{slot}"[:63]


@dataclass(slots=True)
class Retention:
    """Removes the oldest entries that every flow has read, by age and by size."""

    age: int | None
    """Microseconds after which entries are removed; None for never."""
    readers: Callable[[], Iterable[tuple[Path, str]]]
    """The folder of each flow that reads the log, with the name of the source it reads."""
    size: int | None = None
    """Bytes that all entries together may have; None for any number."""
    cleaned: float = 0.0
    _measured: int = 0
    """The first entry whose bytes are not yet counted."""
    _bytes: int = 0

    def clean(self, log: ChangeLog) -> None:
        """Remove what is due, at most once in ``CLEANUP_SECONDS``."""
        if (self.age, self.size) != (None, None) and time.monotonic() - self.cleaned > CLEANUP_SECONDS:
            self.remove(log, now=time.time_ns() // 1000)
            self.cleaned = time.monotonic()

    def remove(self, log: ChangeLog, *, now: int) -> None:
        """Remove what is due. The newest entry stays, because it says how far the WAL was read."""
        first, following = log.first(), log.next()
        if self.size is not None:
            # Each entry is measured once: there may be hundreds of thousands.
            self._bytes += sum(log.size(number) for number in range(max(first, self._measured), following))
            self._measured = following
        read = min((first_unread(folder, source) for folder, source in self.readers()), default=0)
        for number in range(first, min(read, following - 1)):
            too_large = self.size is not None and self._bytes > self.size
            if not too_large and (self.age is None or log.entry(number).logged_at >= now - self.age):
                return
            if self.size is not None:
                self._bytes -= log.size(number)
            log.remove(number)


def first_unread(flow_folder: Path, source: str) -> int:
    """The first entry that the last finished batch of a flow did not read."""
    outcome = BatchLog(LocalStorage(flow_folder)).outcome
    return 0 if outcome is None else int(outcome.positions.get(source, 0))
