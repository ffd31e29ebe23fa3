"""What the log says of a batch: its record, written before its first task, and its outcome, after its last sink."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.checkpoint.log import Log
from headrace.checkpoint.storage import Storage
from headrace.errors import HeadraceError
from headrace.event_time.strategy import BEGINNING
from headrace.event_time.tracker import SavedWatermark
from headrace.json_codec import decode
from headrace.reports import SlotSummary

KEPT_BATCHES = 10
"""About so many batches stay in the log for people to read; a start needs only the last one."""
ENTRIES_OF_A_BATCH = 2
COPIES = 2**20
"""So many drivers that took over at one number, in copies of a log, can be told apart."""

Position = Any
"""Where a source is read, as JSON values; each kind of source has its own."""


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
class SourceRead:
    """What a batch reads of a source: from one position to another, whatever a position is there."""

    since: Position
    until: Position
    unread: Mapping[str, int] = field(default_factory=dict)
    """How many rows wait in each partition after those that the batch reads."""
    partitions: tuple[str, ...] = ()
    """The partitions that the source has by now, if it has any."""

    @property
    def brings_rows(self) -> bool:
        return bool(self.since != self.until)


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What was decided for a batch before it ran; a re-run reads it back and gives the same rows."""

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
    token: str = ""
    """Made with the record. Sinks store it beside the batch number: it tells copies of a checkpoint apart."""
    slots: int = 1
    """Into how many slots the key groups of every step are divided."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """The version of its small table that each step reads."""
    rewritten: tuple[str, ...] = ()
    """The steps whose state is rewritten, because a changed definition gives its rows other due times."""
    reads: Mapping[str, SourceRead] = field(default_factory=dict)
    """What the batch reads of each source."""
    tasks: int = 1
    """How many tasks read a source."""


@dataclass(frozen=True, slots=True)
class MarkedBatch:
    """The last batch that a writer of a sink has marked: its number, and the token of its record."""

    number: int
    token: str = ""
    count: int = field(default=0, compare=False)
    """How many batches this writer has marked, with this one."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What the next batch starts from."""

    batch: int
    trackers: Mapping[str, SavedWatermark] = field(default_factory=dict)
    slots: Mapping[str, Mapping[int, SlotSummary]] = field(default_factory=dict)
    """The state of each step by slot: the manifest."""
    clock: int = BEGINNING
    """The clock of the batch: everything due by then has been looked at."""
    fired: Mapping[str, int] = field(default_factory=dict)
    """The time up to which each step has fired everything."""
    rules_versions: Mapping[str, int] = field(default_factory=dict)
    drained: bool = False
    generation: int = 0
    marks: Mapping[str, Mapping[int, MarkedBatch]] = field(default_factory=dict)
    """The last batch that each writer of each sink marked."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """The definition by which the due times in the state of each step were computed."""
    positions: Mapping[str, Position] = field(default_factory=dict)
    """Up to where each source is read."""
    total: Mapping[str, Any] = field(default_factory=dict)
    """The account of all batches so far."""

    @property
    def files(self) -> set[str]:
        """The files that the state is stored in."""
        return {file for slots in self.slots.values() for slot in slots.values() for file in slot.files}


class BatchLog:
    """The batches of a flow in the flow's log: the last outcome, and the record after it that has none yet.

    >>> from headrace.checkpoint.storage import MemoryStorage
    >>> log = BatchLog(MemoryStorage())
    >>> log.take_over(), log.outcome, log.next_batch
    (1, None, 0)
    """

    def __init__(self, storage: Storage) -> None:
        self._log = Log(storage)
        self.outcome: BatchOutcome | None = None
        self.record: BatchRecord | None = None
        """The record of a batch that was begun and not concluded."""
        self.identity: Any = None
        """What the last driver that took over has said of the flow; None in a new log."""
        self._read()

    @property
    def epoch(self) -> int:
        """The number of the entry with which this driver took over."""
        return self._log.epoch

    @property
    def sink_epoch(self) -> int:
        """The epoch as sinks see it: a later one is higher, and one of a copy of this log is another.

        Of a log that is only read, the highest that the next driver may have.
        """
        if not self._log.epoch:
            return (self._log.next_number + 1) * COPIES - 1
        return self._log.epoch * COPIES + zlib.crc32(self._log.driver.encode()) % COPIES

    @property
    def next_batch(self) -> int:
        """The batch that runs next, for the first time or again."""
        return 0 if self.outcome is None else self.outcome.batch + 1

    def take_over(self, identify: Callable[[Any], Any] = lambda said: said) -> int:
        """Become the driver of the flow: an earlier one can write nothing more. Returns the epoch.

        ``identify`` makes the identity of the flow of what the last driver has said of it.
        """
        while True:
            identity = identify(self.identity)
            try:
                self._log.append("takeover", identity)
            except HeadraceError as problem:
                if problem.id != "LEASE_LOST":
                    raise
                # Another driver came first: what it has written is true, and must be known.
                self._read()
            else:
                self.identity = identity
                return self.epoch

    def read_again(self) -> None:
        """Forget what this driver remembers; fail when another one has taken over."""
        self._read()
        self._log.check_driver()

    def write_record(self, record: BatchRecord) -> None:
        """Log what a batch will do, before its first task."""
        self._log.append("record", record)
        self.record = record

    def write_outcome(self, outcome: BatchOutcome) -> None:
        """Log what a batch has done, after its last sink: it is done. The oldest entries leave the log."""
        number = self._log.append("outcome", outcome, is_base=True).number
        self.outcome, self.record = outcome, None
        self._log.trim(number - ENTRIES_OF_A_BATCH * (KEPT_BATCHES - 1))

    def _read(self) -> None:
        self.outcome = self.record = self.identity = None
        for entry in self._log.read():
            match entry.kind:
                case "takeover":
                    self.identity = entry.body
                case "record":
                    self.record = decode(BatchRecord, entry.body)
                case "outcome":
                    self.outcome, self.record = decode(BatchOutcome, entry.body), None
