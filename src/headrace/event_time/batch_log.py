"""The flow's own log: a record before each batch, an outcome after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from headrace.event_time.record import BatchRecord
from headrace.storage import write_durably

KEPT_BATCHES = 100


class BatchLog(Protocol):
    """Where records and outcomes are kept."""

    def record(self, batch: int) -> BatchRecord | None:
        """The record of a batch, if it was logged."""

    def write_record(self, record: BatchRecord) -> None:
        """Log a batch's record, before its first task."""

    def outcome(self, batch: int) -> dict[str, Any] | None:
        """The outcome of a batch, if it was logged."""

    def write_outcome(self, batch: int, outcome: dict[str, Any]) -> None:
        """Log a batch's outcome, after its last sink and before Spark commits it."""

    def last_outcome(self) -> tuple[int, dict[str, Any]] | None:
        """The newest batch with an outcome."""


class MemoryBatchLog:
    """A log in memory, for the inline engine."""

    def __init__(self) -> None:
        self._records: dict[int, str] = {}
        self._outcomes: dict[int, str] = {}

    def record(self, batch: int) -> BatchRecord | None:
        """The record of a batch, if it was logged."""
        text = self._records.get(batch)
        return None if text is None else BatchRecord.from_json(text)

    def write_record(self, record: BatchRecord) -> None:
        """Log a batch's record."""
        self._records[record.batch] = record.to_json()

    def outcome(self, batch: int) -> dict[str, Any] | None:
        """The outcome of a batch, if it was logged."""
        text = self._outcomes.get(batch)
        return None if text is None else json.loads(text)

    def write_outcome(self, batch: int, outcome: dict[str, Any]) -> None:
        """Log a batch's outcome."""
        self._outcomes[batch] = json.dumps(outcome)

    def last_outcome(self) -> tuple[int, dict[str, Any]] | None:
        """The newest batch with an outcome."""
        if not self._outcomes:
            return None
        newest = max(self._outcomes)
        return newest, json.loads(self._outcomes[newest])


class FileBatchLog:
    """A log of small JSON files, written so that they survive a crash of the machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _file(self, batch: int, kind: str) -> Path:
        return self._folder / f"{batch:010d}.{kind}.json"

    def record(self, batch: int) -> BatchRecord | None:
        """The record of a batch, if it was logged."""
        file = self._file(batch, "record")
        return BatchRecord.from_json(file.read_text()) if file.exists() else None

    def write_record(self, record: BatchRecord) -> None:
        """Log a batch's record; the oldest leave."""
        write_durably(self._file(record.batch, "record"), record.to_json())
        for kind in ("record", "outcome"):
            self._file(record.batch - KEPT_BATCHES, kind).unlink(missing_ok=True)

    def outcome(self, batch: int) -> dict[str, Any] | None:
        """The outcome of a batch, if it was logged."""
        file = self._file(batch, "outcome")
        return json.loads(file.read_text()) if file.exists() else None

    def write_outcome(self, batch: int, outcome: dict[str, Any]) -> None:
        """Log a batch's outcome."""
        write_durably(self._file(batch, "outcome"), json.dumps(outcome, separators=(",", ":")))

    def last_outcome(self) -> tuple[int, dict[str, Any]] | None:
        """The newest batch with an outcome."""
        newest = max(self._folder.glob("*.outcome.json"), default=None)
        return None if newest is None else (int(newest.name.split(".")[0]), json.loads(newest.read_text()))
