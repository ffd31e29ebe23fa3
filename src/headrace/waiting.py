"""Signs that are set up while a sink or a source waits for its server, so that people can see what a flow waits for."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.storage import write_durably

FOLDER = "waiting"


@dataclass(frozen=True, slots=True)
class Sign:
    """The sign of one writer."""

    flow_folder: str
    writer: str
    place: str

    @property
    def _file(self) -> Path:
        return Path(self.flow_folder) / FOLDER / f"{self.writer}.json"

    def set_up(self, reason: str) -> None:
        """Say what the writer waits for, and since when."""
        if not self._file.exists():
            write_durably(self._file, json.dumps({"sink": self.place, "since": time.time(), "reason": reason}))

    def take_down(self) -> None:
        """The writer goes on."""
        self._file.unlink(missing_ok=True)


def is_set_up(flow_folder: Path, writer: str) -> bool:
    """Whether somebody waits under a name."""
    return (flow_folder / FOLDER / f"{writer}.json").exists()


def signs(flow_folder: Path) -> list[dict[str, Any]]:
    """What the writers of a flow wait for now."""
    found = []
    for file in sorted((flow_folder / FOLDER).glob("[!.]*.json")):
        try:
            found.append(json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            continue  # the writer went on in this very moment
    return found


def clear(flow_folder: Path) -> None:
    """Remove the signs that an earlier process left."""
    shutil.rmtree(flow_folder / FOLDER, ignore_errors=True)
