"""Plans a flow's batches: logs each batch's record before it runs, and after it what the next one starts from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import HeadraceError
from headrace.event_time.record import BatchLog, BatchOutcome, BatchRecord, MarkedBatch, new_token
from headrace.event_time.time_keeper import Reads, TimeKeeper
from headrace.nodes import NodeId
from headrace.reports import BatchReports
from headrace.state.group_range import KEY_GROUPS


@dataclass(frozen=True, slots=True)
class Writing:
    """How a flow's rows are written: the checkpoint's generation, the writers of each sink, the slots of its state."""

    generation: int = 0
    writers: Mapping[str, int] = field(default_factory=dict)
    slots: int = 1
    tasks: int = 1
    """How many tasks read a source."""
    key_groups: int = KEY_GROUPS
    definitions: Mapping[str, str] = field(default_factory=dict)
    """The steps with state, as code: a change that they allow may give rows of their state other due times."""


BEFORE_THE_FIRST = -1
"""The batch of an outcome that only says where sources are read from."""
RULES_INPUT = "rules"
"""The second input of a step whose rules come as rows."""
WRITING_ALONE = Writing()
NO_READS: Reads = {}
NO_MARKED: Mapping[str, frozenset[int]] = {}
NO_TOTAL: Mapping[str, Any] = {}


class Planner:
    """Plans the batches of one flow; a new one takes the flow over and starts where the log ended.

    ``complete`` adds to a record what is decided elsewhere, before it is logged.
    """

    def __init__(
        self,
        time: TimeKeeper,
        log: BatchLog,
        *,
        writing: Writing = WRITING_ALONE,
        complete: Callable[[BatchRecord], BatchRecord] = lambda record: record,
    ) -> None:
        self.time = time
        self._log = log
        self._writing = writing
        self._complete = complete
        self.epoch = log.take_over()
        self.marks: dict[str, dict[int, MarkedBatch]] = {}
        """The last batch that each writer of each sink marked."""
        self.positions: dict[str, Any] = {}
        """Up to where each source is read."""
        self.total: Mapping[str, Any] = {}
        """The account of all batches so far."""
        self.rules_versions: dict[str, int] = {}
        """How many changes of its rules each step that has any has taken so far."""
        self.drained = False
        self._definitions = dict(writing.definitions)
        """By which definition the due times in the state of each step were computed."""
        last = log.outcome
        if last is not None:
            self._definitions |= last.definitions
            time.restore(last)
            self.positions = dict(last.positions)
            self.total = last.total
            self.rules_versions = dict(last.rules_versions)
            self.drained = last.drained
            if last.generation == writing.generation:
                self.marks = {sink: dict(marks) for sink, marks in last.marks.items()}

    @property
    def done(self) -> int:
        """The last batch that was concluded; -1 before the first."""
        return self._log.next_batch - 1

    @property
    def files(self) -> set[str]:
        """The files that the state is stored in."""
        return set() if self._log.outcome is None else self._log.outcome.files

    @property
    def runs_again(self) -> bool:
        """Whether a batch was begun and not concluded."""
        return self._log.record is not None

    def begin_at(self, positions: Mapping[str, Any]) -> None:
        """Log where sources are read from that the flow has not read before."""
        self.positions |= positions
        self._log.write_outcome(replace(self._log.outcome or BatchOutcome(BEFORE_THE_FIRST), positions=self.positions))

    def plan(self, *, drain: bool = False, reads: Reads = NO_READS) -> BatchRecord:
        """The record of the next batch: the logged one when it runs again, otherwise decided and logged now."""
        logged = self._log.record
        if logged is None:
            self.time.pass_time()
        self.time.divide(self._writing.slots if logged is None else logged.slots, self._writing.key_groups)
        # What is new has not been quiet before it was there.
        self.time.discover(reads if logged is None else logged.reads)
        record = self._complete(self._decide(reads, drain) if logged is None else logged)
        if record != logged:
            self._log.write_record(record)
        self.time.begin(record)
        return record

    def check_not_drained(self) -> None:
        """Refuse to go on behind the end of time."""
        if self.drained:
            raise HeadraceError(
                "CHECKPOINT_DRAINED",
                "the flow was drained: all its windows were closed at the end of time, so any further row would be "
                "late. Start with a new checkpoint.",
            )

    def _decide(self, reads: Reads, drain: bool) -> BatchRecord:
        self.check_not_drained()
        decided = self.time.decide(self._log.next_batch, drain=drain)
        writing = self._writing
        rewritten = tuple(step for step, given in writing.definitions.items() if self._definitions[step] != given)
        return replace(
            decided,
            rewritten=rewritten,
            wake={**decided.wake, **{step: tuple(self.time.slots[step]) for step in rewritten}},
            generation=writing.generation,
            writers=writing.writers,
            token=new_token(),
            slots=writing.slots,
            reads=reads,
            tasks=writing.tasks,
        )

    def conclude(
        self,
        record: BatchRecord,
        reports: BatchReports,
        marked: Mapping[str, Collection[int]] = NO_MARKED,
        total: Mapping[str, Any] = NO_TOTAL,
    ) -> None:
        """Log what the next batch starts from, after the reports of a batch's tasks and the sinks' writers."""
        self.time.observe(record, reports)
        self.positions |= {name: read.until for name, read in record.reads.items()}
        self.total = total
        for step in record.time_bounds:
            changes = reports.inputs.get(NodeId("step", step, RULES_INPUT))
            if changes is not None:
                taken = sum(report.accepted for report in changes.values())
                self.rules_versions[step] = self.rules_versions.get(step, 0) + taken
        self._definitions |= {step: self._writing.definitions[step] for step in record.rewritten}
        self.drained = self.drained or record.drain
        for sink, writers in marked.items():
            self.marks.setdefault(sink, {}).update(dict.fromkeys(writers, MarkedBatch(record.batch, record.token)))
        self._log.write_outcome(
            BatchOutcome(
                record.batch,
                {name: tracker.saved() for name, tracker in self.time.trackers.items()},
                self.time.slots,
                record.clock,
                self.time.fired,
                self.rules_versions,
                self.drained,
                record.generation,
                self.marks,
                self._definitions,
                self.positions,
                self.total,
            ),
        )
        self.time.end()
