"""The batch log: a record of each batch before its first task, and its outcome after its last sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headrace.event_time.strategy import BEGINNING
from headrace.event_time.tracker import SavedWatermark
from headrace.json_codec import from_text, to_text
from headrace.reports import SlotSummary
from headrace.storage import write_durably

FORMAT = 1
KEPT_BATCHES = 100


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
    clock_before: int = BEGINNING
    """The clock of the batch before."""
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
    """The slots of each step in which something is due: they are called even without rows."""
    drain: bool
    generation: int = 0
    """Sinks' marks are compared by (flow, generation, batch)."""
    writers: Mapping[str, int] = field(default_factory=dict)
    """The number of writers of each sink."""
    epoch: int = 0
    """The lease epoch of the driver that planned it."""
    slots: int = 1
    """Into how many slots the key groups of every step are divided."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """The version of its small table that each step reads."""

    def to_json(self) -> str:
        return to_text(self, format=FORMAT)

    @classmethod
    def from_json(cls, text: str) -> BatchRecord:
        return from_text(cls, text, format=FORMAT)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What the next batch starts from."""

    trackers: Mapping[str, SavedWatermark] = field(default_factory=dict)
    slots: Mapping[str, Mapping[int, SlotSummary]] = field(default_factory=dict)
    """The state of each step by slot."""
    clock: int = BEGINNING
    """The clock of the batch: everything due by then has been looked at."""
    fired: Mapping[str, int] = field(default_factory=dict)
    """The time up to which each step has fired everything."""
    rules_versions: Mapping[str, int] = field(default_factory=dict)
    drained: bool = False
    generation: int = 0
    marks: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """The last batch that each writer of each sink marked."""


class BatchLog(ABC):
    """Records and outcomes by batch, each a text under a name."""

    def record(self, batch: int) -> BatchRecord | None:
        text = self._read(_name(batch, "record"))
        return None if text is None else BatchRecord.from_json(text)

    def write_record(self, record: BatchRecord) -> None:
        """Log a batch's record, before its first task; the oldest batch leaves the log."""
        self._write(_name(record.batch, "record"), record.to_json())
        self._forget(_name(record.batch - KEPT_BATCHES, "record"))
        self._forget(_name(record.batch - KEPT_BATCHES, "outcome"))

    def outcome(self, batch: int) -> BatchOutcome | None:
        return self._outcome(_name(batch, "outcome"))

    def write_outcome(self, batch: int, outcome: BatchOutcome) -> None:
        """Log a batch's outcome, after its last sink and before Spark commits it."""
        self._write(_name(batch, "outcome"), to_text(outcome, format=FORMAT))

    def last_outcome(self) -> BatchOutcome | None:
        newest = max((name for name in self._names() if name.endswith(".outcome.json")), default=None)
        return None if newest is None else self._outcome(newest)

    def _outcome(self, name: str) -> BatchOutcome | None:
        text = self._read(name)
        return None if text is None else from_text(BatchOutcome, text, format=FORMAT)

    @abstractmethod
    def _read(self, name: str) -> str | None: ...

    @abstractmethod
    def _write(self, name: str, text: str) -> None: ...

    @abstractmethod
    def _forget(self, name: str) -> None: ...

    @abstractmethod
    def _names(self) -> Iterable[str]: ...


def _name(batch: int, kind: Literal["record", "outcome"]) -> str:
    return f"{batch:010d}.{kind}.json"


class MemoryBatchLog(BatchLog):
    """A log in memory, for the inline engine."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def _read(self, name: str) -> str | None:
        return self._texts.get(name)

    def _write(self, name: str, text: str) -> None:
        self._texts[name] = text

    def _forget(self, name: str) -> None:
        self._texts.pop(name, None)

    def _names(self) -> Iterable[str]:
        return self._texts


class FileBatchLog(BatchLog):
    """A log of small JSON files, written so that they survive a crash of the machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _read(self, name: str) -> str | None:
        file = self._folder / name
        return file.read_text() if file.exists() else None

    def _write(self, name: str, text: str) -> None:
        write_durably(self._folder / name, text)

    def _forget(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def _names(self) -> Iterable[str]:
        return [file.name for file in self._folder.iterdir()]
