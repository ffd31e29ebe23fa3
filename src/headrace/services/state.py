"""What a service's folder knows about it, in ``service.json``, for every process that asks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.services.processes import Process
from headrace.storage import write_durably

FILE = "service.json"


@dataclass(frozen=True, slots=True)
class State:
    """A service that has been set up: its ports for ever, and the process that was started last and not stopped."""

    name: str
    ports: tuple[int, ...]
    process: Process | None = None

    def write(self, folder: Path) -> None:
        """Make this the state of the folder."""
        fields: dict[str, object] = {"name": self.name, "folder": str(folder), "ports": self.ports}
        if self.process is not None:
            fields |= {"pid": self.process.pid, "started": self.process.started}
        write_durably(folder / FILE, json.dumps(fields))


def read_state(folder: Path) -> State | None:
    """The state of a service's folder; None when nothing was ever set up there."""
    try:
        fields = json.loads((folder / FILE).read_text(encoding="utf-8"))
        process = Process(fields["pid"], fields["started"]) if "pid" in fields else None
        return State(fields["name"], tuple(fields["ports"]), process)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise HeadraceError(
            "SERVICE_STATE",
            f"{folder / FILE} is not what Headrace writes ({error!r}). Stop the server by hand and remove the folder.",
        ) from error
