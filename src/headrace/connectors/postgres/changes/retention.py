"""How much of the log is kept: of what every flow has read, nothing older than told, and no more bytes than told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.connectors.postgres.changes.change_log import ChangeLog

LOOK_SECONDS = 60.0
Readers = Callable[[], Iterable[tuple[Path, str]]]
"""The folder of each flow that reads the log, with the name of the source it reads."""


@dataclass(slots=True)
class Retention:
    """Removes old entries now and then."""

    age: int | None
    """Microseconds after which entries are removed; None for never."""
    readers: Readers
    size: int | None = None
    """Bytes that all entries together may have; None for any number."""
    looked: float = 0.0
    _measured: int = 0
    """The first entry whose bytes are not yet counted."""
    _bytes: int = 0

    def clean(self, log: ChangeLog) -> None:
        """Remove what is due, unless that was just done."""
        if (self.age, self.size) != (None, None) and time.monotonic() - self.looked > LOOK_SECONDS:
            self.remove(log, now=time.time_ns() // 1000)
            self.looked = time.monotonic()

    def remove(self, log: ChangeLog, *, now: int) -> None:
        """Remove entries from the oldest on; the newest stays, for it says how far the server's log was read."""
        first, following = log.first(), log.next()
        if self.size is not None:
            # Each is measured once: there may be hundreds of thousands.
            self._bytes += sum(log.size(number) for number in range(max(first, self._measured), following))
            self._measured = following
        read = min((position(folder, source) for folder, source in self.readers()), default=0)
        for number in range(first, min(read, following - 1)):
            if not self._is_due(log, number, now):
                return
            if self.size is not None:
                self._bytes -= log.size(number)
            log.remove(number)

    def _is_due(self, log: ChangeLog, number: int, now: int) -> bool:
        too_much = self.size is not None and self._bytes > self.size
        return too_much or (self.age is not None and log.entry(number).logged_at < now - self.age)


def position(flow_folder: Path, source: str) -> int:
    """The first entry that a flow may still want: what its last finished batch did not read."""
    finished = [int(file.name) for file in (flow_folder / "spark" / "commits").glob("[0-9]*")]
    if not finished:
        return 0
    lines = (flow_folder / "spark" / "offsets" / str(max(finished))).read_text().splitlines()
    offsets = [json.loads(line) for line in lines if line.startswith('{"')]
    return min((offset["entry"] for offset in offsets if offset.get("source") == source), default=0)
