"""What the tasks of a batch report to the driver: rows counted by node, event times seen, side files written.

Reports and node ids have no slots: pickle takes eight times as long with them, and every slot sends one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.nodes import NodeId
from headrace.state.group_range import GroupRange
from headrace.state.segment import SegmentRange

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

Counters = Mapping[str, int]
SideFiles = Mapping[str, tuple[tuple[str, int], ...]]
"""For each side output the files that a task wrote, with their numbers of rows."""


@dataclass(frozen=True)
class SourceReport:
    """What one task read of a source."""

    read: int = 0
    handed_on: int = 0
    dead: int = 0
    lost: int = 0
    """Rows that the source no longer had."""
    skipped: int = 0
    highest: Mapping[str, int] = field(default_factory=dict)
    """The highest event time of each partition."""
    side: SideFiles = field(default_factory=dict)
    readings: frozenset[tuple[int, int]] = frozenset()
    """Where it was read, as stage and partition, which a task that is tried again keeps; empty where Spark read it."""

    def after(self, earlier: Report | None) -> SourceReport:
        """This report in the place of an earlier one, of which it keeps where that was read."""
        before = earlier.readings if isinstance(earlier, SourceReport) else frozenset()
        return replace(self, readings=self.readings | before)


@dataclass(frozen=True)
class KeyCounts:
    """The keys that most rows of a task have, estimated from a sample."""

    rows: int = 0
    top: tuple[tuple[tuple[str | None, ...], int], ...] = ()


@dataclass(frozen=True)
class StepReport:
    """What became of one task's rows at an input of a step."""

    in_: int = 0
    accepted: int = 0
    late: int = 0
    partly_late: int = 0
    """Accepted rows that were too late for some of their windows."""
    dropped: int = 0
    failed: int = 0
    keys: KeyCounts = field(default_factory=KeyCounts)
    counters: Counters = field(default_factory=dict)
    side: SideFiles = field(default_factory=dict)


@dataclass(frozen=True)
class WaitingRows:
    """Rows of a slot that wait for event time to pass them, counted apart from those that are handled.

    before + accepted on the map side = handled + late + failed + dropped + after
    """

    before: int
    handled: int
    after: int


@dataclass(frozen=True)
class SlotSummary:
    """The state of a step in a slot after a batch."""

    segments: tuple[SegmentRange, ...] = ()
    shared: tuple[SegmentRange, ...] = ()
    """Of the first slot: rows that all slots see."""
    due: int | None = None
    """When the slot must be called though no row comes, by event time."""
    due_clock: int | None = None
    """The same by the clock."""
    waiting: int = 0
    """How many rows wait for event time to pass them."""

    @property
    def rows(self) -> int:
        """The rows that are stored, with those that later ones have replaced."""
        return sum(each.rows for each in self.segments)

    def lies_within(self, groups: GroupRange) -> bool:
        return all(each.groups.shared(groups) == each.groups for each in self.segments)

    @property
    def files(self) -> set[str]:
        return {each.file for each in (*self.segments, *self.shared)}

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.segments)


@dataclass(frozen=True)
class StateReport:
    """What the state of one slot found in rows that the map side had accepted, and what it is now."""

    slot: SlotSummary
    late: int = 0
    dropped: int = 0
    dropped_second: Mapping[str, int] = field(default_factory=dict)
    """The same of the second input's rows, by the name of that input."""
    failed: int = 0
    waiting: WaitingRows | None = None
    counters: Counters = field(default_factory=dict)
    side: SideFiles = field(default_factory=dict)


Report = SourceReport | StepReport | StateReport
ReportKey = tuple[str, int, NodeId, int]
"""(flow, batch, node, and the number of a task, or the partition or slot)"""
ReportAccumulator: TypeAlias = "Accumulator[dict[ReportKey, Report]]"


@dataclass(frozen=True, slots=True)
class BatchReports:
    """All reports of a batch, each by partition or slot.

    >>> reports = BatchReports()
    >>> reports.add(NodeId("source", "payments"), 0, SourceReport(read=3))
    >>> sum(report.read for report in reports.of_source("payments"))
    3
    """

    sources: dict[str, dict[int, SourceReport]] = field(default_factory=dict)
    inputs: dict[NodeId, dict[int, StepReport]] = field(default_factory=dict)
    states: dict[str, dict[int, StateReport]] = field(default_factory=dict)

    def add(self, node: NodeId, part: int, report: Report) -> None:
        """Take in the report of a node's partition or slot; a later one replaces an earlier one."""
        match report:
            case SourceReport():
                self.sources.setdefault(node.name, {})[part] = report
            case StepReport():
                self.inputs.setdefault(node, {})[part] = report
            case StateReport():
                self.states.setdefault(node.name, {})[part] = report

    def of_source(self, name: str) -> tuple[SourceReport, ...]:
        return tuple(self.sources.get(name, {}).values())

    def nodes(self) -> Iterator[tuple[NodeId, Mapping[int, Report]]]:
        for name, sources in self.sources.items():
            yield NodeId("source", name), sources
        yield from self.inputs.items()
        for name, states in self.states.items():
            yield NodeId("state", name), states

    def side_files(self, output: str, *, source: str | None = None, step: str | None = None) -> dict[str, int]:
        """The files of a source's side output, or of a step's, from its inputs and its state; with their rows."""
        return {
            file: rows
            for node, parts in self.nodes()
            if node.name == (source if node.kind == "source" else step)
            for report in parts.values()
            for file, rows in report.side.get(output, ())
        }
