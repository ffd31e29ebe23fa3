"""What a landing folder of changes is: whose log it holds, and why its feed has given up, if it has."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from headrace.connectors.postgres.changes.catalogue import Table
from headrace.errors import HeadraceError
from headrace.storage import write_durably

BIRTH, FAILED, SESSION = "birth.json", "failed.json", "session"


@dataclass(frozen=True, slots=True)
class Birth:
    """What a landing folder belongs to: a slot, its tables as they were, and the folder with the log itself."""

    slot: str
    publication: str
    log: str
    """Made up anew when a snapshot has to be begun again, so that whoever was at it before disturbs nobody."""
    tables: tuple[Table, ...]
    published: tuple[int, ...] = ()
    """The numbers of the publication and of the tables' places in it: made anew, they would have others."""

    def write(self, folder: Path) -> None:
        """Keep it."""
        told = {
            "slot": self.slot,
            "publication": self.publication,
            "log": self.log,
            "tables": [table.to_json() for table in self.tables],
            "published": list(self.published),
        }
        write_durably(folder / BIRTH, json.dumps(told, indent=2))

    @property
    def by_name(self) -> dict[str, Table]:
        """The tables by name."""
        return {table.name: table for table in self.tables}


def birth_of(folder: Path) -> Birth | None:
    """What a landing folder belongs to, once a feed has begun there."""
    file = folder / BIRTH
    if not file.exists():
        return None
    told = json.loads(file.read_text(encoding="utf-8"))
    tables = tuple(Table.from_json(table) for table in told["tables"])
    return Birth(**{**told, "tables": tables, "published": tuple(told.get("published", ()))})


def session_of(folder: Path, slot: str) -> str:
    """The name of this checkpoint's sessions on the server, made up once: a later driver ends those of an earlier."""
    file = folder / SESSION
    if not file.exists():
        write_durably(file, uuid.uuid4().hex[:12])
    return f"headrace:{file.read_text(encoding='utf-8')}:{slot}"[:63]


def failure_in(folder: Path) -> HeadraceError | None:
    """Why a feed has given up."""
    file = folder / FAILED
    if not file.exists():
        return None
    told = json.loads(file.read_text(encoding="utf-8"))
    return HeadraceError(told["id"], told["message"].removeprefix(f"[{told['id']}] "))


def tell_failure(folder: Path, failure: HeadraceError) -> None:
    """Say to the flows why nothing more will come."""
    write_durably(folder / FAILED, json.dumps({"id": failure.id, "message": str(failure)}))


def forget_failure(folder: Path) -> None:
    """Begin again."""
    (folder / FAILED).unlink(missing_ok=True)
