"""What a running demonstration has left on disk so far: only what is new is read each time."""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from headrace.observe.committed import commits, rows_of
from headrace.observe.history import FILE

LATEST = 14


@dataclass(slots=True)
class Committed:
    """The committed batches of one folder: how many rows there are, and the latest of them."""

    folder: Path
    order: tuple[str, ...]
    """Columns in whose order rows count as the latest."""
    rows: int = 0
    latest: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=LATEST))
    _seen: set[str] = field(default_factory=set)

    def look(self) -> pl.DataFrame:
        """The rows that have been committed since the last look."""
        fresh = [commit for commit in commits(self.folder) if commit.name not in self._seen]
        if not fresh:
            return pl.DataFrame()
        self._seen.update(commit.name for commit in fresh)
        rows = pl.concat([rows_of(commit) for commit in fresh])
        self.rows += rows.height
        self.latest.extend(rows.sort(self.order).tail(LATEST).to_dicts())
        return rows


@dataclass(slots=True)
class Feed:
    """All that the screen shows."""

    flow: Path
    windows: Committed
    late: Committed
    dead: Committed
    batches: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The history's entries; of a batch that ran again the later one."""
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """What was wrong with the latest dead letter of each reason."""
    _read: int = 0

    @classmethod
    def of(cls, folder: Path, flow: Path) -> Feed:
        """The feed of a demonstration in this folder."""
        return cls(
            flow,
            Committed(folder / "windows", ("window", "shop")),
            Committed(folder / "late", ("at",)),
            Committed(flow / "dead_letters", ("position",)),
        )

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The history's entries, oldest first."""
        return list(self.batches.values())

    def look(self) -> None:
        """Take in what has happened since the last look."""
        self.windows.look()
        self.late.look()
        dead = self.dead.look()
        if not dead.is_empty():
            self.reasons.update(dead["reason"].to_list())
            self.examples |= dict(dead.sort("position").select("reason", "detail").rows())
        self._look_at_history()

    def _look_at_history(self) -> None:
        file = self.flow / FILE
        if not file.exists():
            return
        with file.open("rb") as stream:
            stream.seek(self._read)
            text = stream.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        self.batches |= {entry["batch"]: entry for entry in map(json.loads, whole.splitlines())}
