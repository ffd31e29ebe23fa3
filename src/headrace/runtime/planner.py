"""Plans a flow's batches: logs each batch's record before it runs, and after it what the next one starts from."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import HeadraceError
from headrace.event_time.record import BatchLog, BatchOutcome, BatchRecord, MarkedBatch, Position
from headrace.event_time.time_keeper import Reads, TimeKeeper, Topology
from headrace.graph import FlowNode, Graph
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


def topology_of(graph: Graph, node: FlowNode) -> Topology:
    """The nodes of a flow that time runs through."""
    return Topology(
        {name: graph.sources[name].time for name in node.sources if graph.sources[name].time is not None},
        {name: tuple(map(graph.time_node, graph.steps[name].inputs)) for name in graph.stateful(node.steps)},
        frozenset(name for name in node.sources if graph.sources[name].divided),
        {name: graph.steps[name].step.holdback for name in node.steps},
    )


BEFORE_THE_FIRST = -1
"""The batch of an outcome that only says where sources are read from."""
RULES_INPUT = "rules"
"""The second input of a step whose rules come as rows."""
NO_READS: Reads = {}
NO_MARKED: Mapping[str, frozenset[int]] = {}
NO_TOTAL: Mapping[str, Any] = {}


def check_not_drained(last: BatchOutcome) -> None:
    """Refuse to go on past the end of time."""
    if last.drained:
        raise HeadraceError(
            "CHECKPOINT_DRAINED",
            "the flow was drained: all its windows were closed at the end of time, so any further row would be "
            "late. Start with a new checkpoint.",
        )


class Planner:
    """Plans the batches of one flow, for the driver that has taken it over; a new one starts where the log ended.

    ``complete`` adds to a record what is decided elsewhere, before it is logged.
    """

    def __init__(
        self,
        time: TimeKeeper,
        log: BatchLog,
        *,
        writing: Writing,
        complete: Callable[[BatchRecord], BatchRecord] = lambda record: record,
    ) -> None:
        self.time = time
        self._log = log
        self._writing = writing
        self._complete = complete
        last = log.outcome or BatchOutcome(BEFORE_THE_FIRST)
        time.restore(last)
        self.last = replace(
            last,
            marks=last.marks if last.generation == writing.generation else {},
            definitions={**writing.definitions, **last.definitions},
        )
        """What the next batch starts from."""

    @property
    def runs_again(self) -> bool:
        """Whether a batch was begun and not concluded."""
        return self._log.record is not None

    def begin_at(self, positions: Mapping[str, Position]) -> None:
        """Log where sources are read from that the flow has not read before."""
        positions = {**self.last.positions, **positions}
        self._log.write_outcome(replace(self._log.outcome or BatchOutcome(BEFORE_THE_FIRST), positions=positions))
        self.last = replace(self.last, positions=positions)

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

    def _decide(self, reads: Reads, drain: bool) -> BatchRecord:
        check_not_drained(self.last)
        decided = self.time.decide(self._log.next_batch, drain=drain)
        writing = self._writing
        rewritten = tuple(step for step, given in writing.definitions.items() if self.last.definitions[step] != given)
        return replace(
            decided,
            rewritten=rewritten,
            wake={**decided.wake, **{step: tuple(self.time.slots[step]) for step in rewritten}},
            generation=writing.generation,
            writers=writing.writers,
            token=uuid.uuid4().hex,
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
        last, marks = self.last, dict(self.last.marks)
        for sink, writers in marked.items():
            before = marks.get(sink, {})
            counts = {writer: before[writer].count + 1 if writer in before else 1 for writer in writers}
            now = {writer: MarkedBatch(record.batch, record.token, count) for writer, count in counts.items()}
            marks[sink] = {**before, **now}
        rules_versions = dict(last.rules_versions)
        for step in record.time_bounds:
            changes = reports.inputs.get(NodeId("step", step, RULES_INPUT))
            if changes is not None:
                taken = sum(report.accepted for report in changes.values())
                rules_versions[step] = rules_versions.get(step, 0) + taken
        self.last = BatchOutcome(
            record.batch,
            {name: tracker.saved() for name, tracker in self.time.trackers.items()},
            self.time.slots,
            record.clock,
            self.time.fired,
            rules_versions,
            last.drained or record.drain,
            record.generation,
            marks,
            {**last.definitions, **{step: self._writing.definitions[step] for step in record.rewritten}},
            {**last.positions, **{name: read.until for name, read in record.reads.items()}},
            total,
        )
        self._log.write_outcome(self.last)
        self.time.end()
