"""Plans a flow's batches: logs each batch's record before it runs, and after it what the next one starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headrace.errors import HeadraceError
from headrace.event_time.record import BatchLog, BatchOutcome, BatchRecord
from headrace.event_time.time_keeper import Partitions, TimeKeeper
from headrace.nodes import NodeId
from headrace.reports import BatchReports
from headrace.state.group_range import KEY_GROUPS


@dataclass(frozen=True, slots=True)
class Writing:
    """How a flow's rows are written: the checkpoint's generation, the driver's lease, the writers of each sink."""

    generation: int = 0
    epoch: int = 0
    writers: Mapping[str, int] = field(default_factory=dict)
    slots: int = 1
    key_groups: int = KEY_GROUPS


RULES_INPUT = "rules"
"""The second input of a step whose rules come as rows."""
WRITING_ALONE = Writing()
NO_PARTITIONS: Partitions = {}
NO_MARKS: Mapping[str, Mapping[int, int]] = {}


class Planner:
    """Plans the batches of one flow; a new one starts where the log of the last one ended.

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
        self.marks: dict[str, dict[int, int]] = {}
        """The last batch that each writer of each sink marked."""
        self.rules_versions: dict[str, int] = {}
        """How many changes of its rules each step that has any has taken so far."""
        self.drained = False
        last = log.last_outcome()
        if last is not None:
            time.restore(last)
            self.rules_versions = dict(last.rules_versions)
            self.drained = last.drained
            if last.generation == writing.generation:
                self.marks = {sink: dict(marks) for sink, marks in last.marks.items()}

    def is_done(self, batch: int) -> bool:
        """Whether a batch was concluded, whatever Spark knows of it."""
        return self._log.outcome(batch) is not None

    def plan(self, batch: int, *, drain: bool = False, partitions: Partitions = NO_PARTITIONS) -> BatchRecord:
        """The record of a batch: the logged one when the batch runs again, otherwise decided and logged now.

        ``partitions`` are those that each divided source has by now.
        """
        logged = self._log.record(batch)
        if logged is None:
            self.time.pass_time()
        self.time.divide(self._writing.slots if logged is None else logged.slots, self._writing.key_groups)
        # What is new has not been quiet before it was there.
        self.time.discover(partitions)
        record = self._complete(self._decide(batch, drain) if logged is None else logged)
        if record != logged:
            self._log.write_record(record)
        self.time.begin(record)
        return record

    def _decide(self, batch: int, drain: bool) -> BatchRecord:
        if self.drained:
            raise HeadraceError(
                "CHECKPOINT_DRAINED",
                "the flow was drained: all its windows were closed at the end of time, so any further row would be "
                "late. Start with a new checkpoint.",
            )
        decided = self.time.decide(batch, drain=drain)
        writing = self._writing
        return replace(
            decided,
            generation=writing.generation,
            writers=writing.writers,
            epoch=writing.epoch,
            slots=writing.slots,
        )

    def conclude(
        self, record: BatchRecord, reports: BatchReports, marks: Mapping[str, Mapping[int, int]] = NO_MARKS
    ) -> None:
        """Log what the next batch starts from, after the reports of a batch's tasks and sinks."""
        self.time.observe(record, reports)
        for step in record.time_bounds:
            changes = reports.inputs.get(NodeId("step", step, RULES_INPUT))
            if changes is not None:
                taken = sum(report.accepted for report in changes.values())
                self.rules_versions[step] = self.rules_versions.get(step, 0) + taken
        self.drained = self.drained or record.drain
        for sink, marked in marks.items():
            self.marks.setdefault(sink, {}).update(marked)
        self._log.write_outcome(
            record.batch,
            BatchOutcome(
                {name: tracker.saved() for name, tracker in self.time.trackers.items()},
                self.time.slots,
                record.clock,
                self.time.fired,
                self.rules_versions,
                self.drained,
                record.generation,
                self.marks,
            ),
        )
        self.time.end()
