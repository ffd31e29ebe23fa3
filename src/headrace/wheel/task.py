"""What a task knows of its batch, and how it reports back.

The logged record is handed over as a Spark local property and has no default. Reports travel in an accumulator and are
exact under retries, because the same report replaces itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pyspark import SparkContext
from pyspark.accumulators import AccumulatorParam

from headrace.checkpoint.storage import LocalStorage, Storage
from headrace.checkpoint.sweep import FileName
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord, TimeBounds
from headrace.json_codec import from_text, to_text
from headrace.nodes import NodeId
from headrace.reports import BatchReports, Report, ReportAccumulator, ReportKey, SlotSummary, SourceReport
from headrace.state.group_range import GroupRange, Hashes, groups_of
from headrace.state.segment import WORKER, OpenSegments, SegmentFiles

PROPERTY = "headrace.batch"
FORMAT = 1
STATE = "state"
"""The folder of the state's segments, below that of the flow."""
SIDE = "side"
"""The folder of side rows, below that of the flow."""
TABLES = "tables"
"""The folder of small tables, below that of the flow."""
Reporter = Callable[[ReportKey, Report], None]
Splits = Mapping[str, Sequence[Sequence[Any]]]
"""Of each source what every task reads, as JSON values."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """Where the state of a flow lies, and what it was after the last batch."""

    storage: Storage
    opened: OpenSegments
    key_groups: int
    epoch: int
    """The lease epoch of the driver that runs the batch."""
    slots: Mapping[str, Mapping[int, SlotSummary]]


@dataclass(frozen=True, slots=True)
class Task:
    """One task of one batch: the record it must obey, where it runs, and where its reports go."""

    record: BatchRecord
    flow: str
    partition: int
    reporter: Reporter
    state: TaskState
    splits: Splits = field(default_factory=dict)
    stage: int = 0
    """The stage of Spark's that it belongs to."""
    runs_again: bool = False
    """Whether the batch was begun before and not concluded: sinks may have it, so it must read the same."""

    def time_bounds(self, step: str) -> TimeBounds:
        return replace(self.record.time_bounds[step], batch=self.record.batch)

    def slots_of(self, hashes: Hashes) -> tuple[pl.Series, pl.Series]:
        """The slot and the key group of every hash."""
        groups = groups_of(hashes, self.state.key_groups)
        ends = [self.groups(slot).end for slot in range(self.record.slots)]
        return pl.Series(np.searchsorted(ends, groups, side="right"), dtype=pl.Int32), pl.Series(groups)

    def groups(self, slot: int) -> GroupRange:
        return GroupRange.of_slot(slot, slots=self.record.slots, key_groups=self.state.key_groups)

    @property
    def all_groups(self) -> GroupRange:
        return GroupRange(0, self.state.key_groups, self.state.key_groups)

    def slot(self, step: str, slot: int) -> SlotSummary:
        """What the state of a slot was after the last batch."""
        return self.state.slots.get(step, {}).get(slot, SlotSummary())

    def segment_files(self, step: str, slot: int) -> SegmentFiles:
        state, folder, batch = self.state, f"{STATE}/{step}", self.record.batch
        return SegmentFiles(state.storage, state.opened, lambda: str(FileName(folder, state.epoch, batch, slot)))

    def close_others(self, step: str, slot: int, now: SlotSummary) -> None:
        """Close the segments of the flow that no slot has any more."""
        slots = {**self.state.slots, step: {**self.state.slots.get(step, {}), slot: now}}
        named = {file for each in slots.values() for summary in each.values() for file in summary.files}
        self.state.opened.close_others(self.state.storage, named)

    def table_file(self, step: str) -> str:
        """The version of its small table that a step reads in this batch."""
        return table_file(step, self.record.tables[step])

    def report(self, node: NodeId, report: Report, *, part: int | None = None) -> None:
        """Report to the driver what happened here; a report of the same node and part replaces an earlier one."""
        self.reporter((self.flow, self.record.batch, node, self.partition if part is None else part), report)


def table_file(step: str, version: int) -> str:
    """Where a version of a step's small table is kept.

    >>> table_file("rates", 3)
    'tables/rates/0000000003.arrow'
    """
    return f"{TABLES}/{step}/{version:010d}.arrow"


Slots = Mapping[str, Mapping[int, SlotSummary]]


@dataclass(frozen=True, slots=True)
class BatchProperty:
    """What the driver hands to the tasks of a batch, in a local property of Spark."""

    record: BatchRecord
    flow: str
    folder: str
    key_groups: int
    epoch: int
    slots: Slots
    splits: Splits
    runs_again: bool = False

    def to_text(self) -> str:
        return to_text(self, format=FORMAT)


@lru_cache(maxsize=8)
def _read_property(text: str) -> tuple[BatchProperty, TaskState]:
    given = from_text(BatchProperty, text, format=FORMAT)
    state = TaskState(LocalStorage(Path(given.folder)), WORKER, given.key_groups, given.epoch, given.slots)
    return given, state


def current_task(reports: ReportAccumulator) -> Task:
    """The Spark task this code runs in."""
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(PROPERTY)
    if context is None or text is None:
        raise HeadraceError(
            "BATCH_UNKNOWN",
            "a task of a Headrace flow runs without its batch record, so its time is unknown. Use the frame only in "
            "hr.write(...); a frame of a pipeline cannot be collected or written by a query of your own.",
        )
    given, state = _read_property(text)

    def reporter(key: ReportKey, report: Report) -> None:
        reports.add({key: report})

    partition, stage = context.partitionId(), context.stageId()
    return Task(given.record, given.flow, partition, reporter, state, given.splits, stage, given.runs_again)


class ReportsByKey(AccumulatorParam[dict[ReportKey, Report]]):
    """Merges reports by replacing them, where a sum would count a retried task twice."""

    def zero(self, value: dict[ReportKey, Report]) -> dict[ReportKey, Report]:
        return {}

    def addInPlace(self, value1: dict[ReportKey, Report], value2: dict[ReportKey, Report]) -> dict[ReportKey, Report]:
        """The later report of a key stands; of a source it also says where it was read before."""
        for key, report in value2.items():
            value1[key] = report.after(value1.get(key)) if isinstance(report, SourceReport) else report
        return value1


def reports_of(context: SparkContext) -> ReportAccumulator:
    """An accumulator for the reports of a pipeline's tasks."""
    return context.accumulator({}, ReportsByKey())


def take_reports(reports: dict[ReportKey, Report], *, flow: str, batch: int) -> BatchReports:
    """Remove a batch's reports (and those of older batches) and return them in their order."""
    taken = BatchReports()
    # Tasks of other flows go on reporting meanwhile.
    for key in sorted(key for key in list(reports) if key[0] == flow and key[1] <= batch):
        report = reports.pop(key)
        if key[1] == batch:
            taken.add(key[2], key[3], report)
    return taken
