"""Outage markers: files that show, while a sink or source waits for its server, what a flow waits for."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.storage import write_durably

FOLDER = "waiting"


@dataclass(frozen=True, slots=True)
class Outage:
    """A server that does not answer: which one, since when (seconds since 1970), and what it last said."""

    sink: str
    since: float
    reason: str


@dataclass(frozen=True, slots=True)
class OutageMarker:
    """The marker of one writer or source."""

    flow_folder: str
    writer: str
    place: str

    @property
    def _file(self) -> Path:
        return Path(self.flow_folder) / FOLDER / f"{self.writer}.json"

    def begin(self, reason: str) -> None:
        """Mark that the server does not answer, unless that is marked already."""
        if not self._file.exists():
            write_durably(self._file, json.dumps(asdict(Outage(self.place, time.time(), reason))))

    def end(self) -> None:
        self._file.unlink(missing_ok=True)


def has_outage(flow_folder: Path, writer: str) -> bool:
    """Whether a writer or source waits for its server."""
    return (flow_folder / FOLDER / f"{writer}.json").exists()


def outages(flow_folder: Path) -> list[Outage]:
    """The servers that a flow waits for now."""
    found = []
    for file in sorted((flow_folder / FOLDER).glob("[!.]*.json")):
        try:
            found.append(Outage(**json.loads(file.read_text(encoding="utf-8"))))
        except FileNotFoundError:
            continue  # the server answered in this very moment
    return found


def clear_outages(flow_folder: Path) -> None:
    """Remove the markers that an earlier process left."""
    shutil.rmtree(flow_folder / FOLDER, ignore_errors=True)
