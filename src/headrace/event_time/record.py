"""The batch log: a record of each batch before its first task, and its outcome after its last sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headrace.event_time.strategy import BEGINNING
from headrace.event_time.tracker import SavedWatermark
from headrace.json_codec import from_text, to_text
from headrace.reports import KeyGroupState
from headrace.storage import write_durably

FORMAT = 1
KEPT_BATCHES = 100
Kind = Literal["record", "outcome"]


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
    time_bounds: Mapping[str, TimeBounds] = field(metadata={"json": "edges"})
    wake: Mapping[str, tuple[int, ...]]
    """The key groups of each step in which something is due: they are called even without rows."""
    drain: bool
    generation: int = 0
    """Sinks' marks are compared by (flow, generation, batch)."""
    writers: Mapping[str, int] = field(default_factory=dict)
    """The number of writers of each sink."""
    epoch: int = 0
    """The lease epoch of the driver that planned it."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """The version of its small table that each step reads."""

    def to_json(self) -> str:
        """The record as one line of JSON."""
        return to_text(self, format=FORMAT)

    @classmethod
    def from_json(cls, text: str) -> BatchRecord:
        """The record from its JSON."""
        return from_text(cls, text, format=FORMAT)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What the next batch starts from."""

    trackers: Mapping[str, SavedWatermark] = field(default_factory=dict)
    groups: Mapping[str, Mapping[int, KeyGroupState]] = field(default_factory=dict)
    """The key groups of each step."""
    fired: Mapping[str, int] = field(default_factory=dict)
    """The time up to which each step has fired everything."""
    rules_versions: Mapping[str, int] = field(default_factory=dict)
    drained: bool = False
    generation: int = 0
    marks: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """The last batch that each writer of each sink marked."""


class BatchLog(ABC):
    """Records and outcomes by batch."""

    def record(self, batch: int) -> BatchRecord | None:
        """The record of a batch, if it was logged."""
        text = self._read(batch, "record")
        return None if text is None else BatchRecord.from_json(text)

    def write_record(self, record: BatchRecord) -> None:
        """Log a batch's record, before its first task; the oldest batch leaves the log."""
        self._write(record.batch, "record", record.to_json())
        self._forget(record.batch - KEPT_BATCHES)

    def outcome(self, batch: int) -> BatchOutcome | None:
        """The outcome of a batch, if it was logged."""
        text = self._read(batch, "outcome")
        return None if text is None else from_text(BatchOutcome, text, format=FORMAT)

    def write_outcome(self, batch: int, outcome: BatchOutcome) -> None:
        """Log a batch's outcome, after its last sink and before Spark commits it."""
        self._write(batch, "outcome", to_text(outcome, format=FORMAT))

    def last_outcome(self) -> BatchOutcome | None:
        """The outcome of the newest batch that has one."""
        newest = self._last_outcome()
        return None if newest is None else self.outcome(newest)

    @abstractmethod
    def _read(self, batch: int, kind: Kind) -> str | None: ...

    @abstractmethod
    def _write(self, batch: int, kind: Kind, text: str) -> None: ...

    @abstractmethod
    def _forget(self, batch: int) -> None: ...

    @abstractmethod
    def _last_outcome(self) -> int | None: ...


class MemoryBatchLog(BatchLog):
    """A log in memory, for the inline engine."""

    def __init__(self) -> None:
        self._texts: dict[tuple[Kind, int], str] = {}

    def _read(self, batch: int, kind: Kind) -> str | None:
        return self._texts.get((kind, batch))

    def _write(self, batch: int, kind: Kind, text: str) -> None:
        self._texts[kind, batch] = text

    def _forget(self, batch: int) -> None:
        """A log in memory is short-lived and keeps everything."""

    def _last_outcome(self) -> int | None:
        return max((batch for kind, batch in self._texts if kind == "outcome"), default=None)


class FileBatchLog(BatchLog):
    """A log of small JSON files, written so that they survive a crash of the machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _file(self, batch: int, kind: Kind) -> Path:
        return self._folder / f"{batch:010d}.{kind}.json"

    def _read(self, batch: int, kind: Kind) -> str | None:
        file = self._file(batch, kind)
        return file.read_text() if file.exists() else None

    def _write(self, batch: int, kind: Kind, text: str) -> None:
        write_durably(self._file(batch, kind), text)

    def _forget(self, batch: int) -> None:
        self._file(batch, "record").unlink(missing_ok=True)
        self._file(batch, "outcome").unlink(missing_ok=True)

    def _last_outcome(self) -> int | None:
        newest = max(self._folder.glob("*.outcome.json"), default=None)
        return None if newest is None else int(newest.name.split(".")[0])
