"""The batch log: a record of each batch before its first task, and its outcome after its last sink."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headrace.errors import HeadraceError
from headrace.event_time.strategy import BEGINNING
from headrace.storage import write_durably

FORMAT = 1


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """The time bounds of a step's input in one batch.

    A row is on time when its time is at least ``late``; the step fires everything due up to ``fire``, and has fired
    everything up to ``before`` in earlier batches. ``clock`` is the batch's processing time, ``batch`` its number.
    """

    late: int
    fire: int
    before: int = BEGINNING
    clock: int = 0
    batch: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What was decided for a batch before it ran; a re-run reads it back and gives the same rows.

    >>> record = BatchRecord(3, 0, {"payments": 5}, {"hourly": TimeBounds(5, 5)}, {"hourly": (1, 2)}, drain=False)
    >>> BatchRecord.from_json(record.to_json()) == record
    True
    """

    batch: int
    clock: int
    watermarks: Mapping[str, int]
    time_bounds: Mapping[str, TimeBounds]
    wake: Mapping[str, tuple[int, ...]]
    """Key groups of each step in which something is due, so they are called even without rows."""
    drain: bool
    generation: int = 0
    """Sinks' marks are compared by (flow, generation, batch)."""
    writers: Mapping[str, int] = field(default_factory=dict)
    """Among how many writers the rows of each sink are dealt out."""
    epoch: int = 0
    """The lease of the driver that decided."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """The version of its small table that each step reads."""

    def to_json(self) -> str:
        """The record as one line of JSON."""
        fields = asdict(self)
        fields["edges"] = fields.pop("time_bounds")  # the name in the logs of all checkpoints
        return json.dumps({"format": FORMAT, **fields}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BatchRecord:
        """The record from its JSON."""
        raw = json.loads(text)
        if raw["format"] != FORMAT:
            raise HeadraceError(
                "RECORD_FORMAT_UNKNOWN",
                f"the checkpoint's log has format {raw['format']}, this version of Headrace reads format {FORMAT}. "
                "Use the version that wrote it.",
            )
        return cls(
            raw["batch"],
            raw["clock"],
            raw["watermarks"],
            {step: TimeBounds(**bounds) for step, bounds in raw["edges"].items()},
            {step: tuple(groups) for step, groups in raw["wake"].items()},
            raw["drain"],
            raw["generation"],
            raw["writers"],
            raw["epoch"],
            raw.get("tables", {}),
        )


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
