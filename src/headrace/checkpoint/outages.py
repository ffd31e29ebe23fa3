"""Outage markers: files that show, while a sink or source waits for its server, what a flow waits for."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

from headrace.checkpoint.storage import Storage
from headrace.redaction import redacted

FOLDER = "waiting"


@dataclass(frozen=True, slots=True)
class Outage:
    """A server that does not answer: which one, since when (seconds since 1970), and what it last said."""

    sink: str
    since: float
    reason: str


@dataclass(frozen=True, slots=True)
class OutageMarker:
    """The marker of one writer or source, in the storage of a flow or of the whole checkpoint."""

    storage: Storage
    writer: str
    place: str

    def begin(self, reason: str) -> None:
        """Mark that the server does not answer, unless that is marked already."""
        outage = Outage(self.place, time.time(), redacted(reason))
        self.storage.create(_file(self.writer), json.dumps(asdict(outage)).encode())

    def end(self) -> None:
        self.storage.delete(_file(self.writer))


def has_outage(storage: Storage, writer: str) -> bool:
    """Whether a writer or source waits for its server."""
    return _file(writer) in storage.list(FOLDER)


def outages(storage: Storage) -> list[Outage]:
    """The servers that a flow waits for now."""
    found = []
    for file in sorted(storage.list(FOLDER)):
        try:
            found.append(Outage(**json.loads(storage.open(file).to_pybytes())))
        except FileNotFoundError:
            continue  # the server answered in this very moment
    return found


def clear_outages(storage: Storage) -> None:
    """Remove the markers that an earlier process left."""
    storage.clear(FOLDER)


def _file(writer: str) -> str:
    return f"{FOLDER}/{writer}.json"
