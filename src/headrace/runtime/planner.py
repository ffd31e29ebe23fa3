"""Decides time for a flow: each batch's record before it runs, and what the next batch starts from after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import HeadraceError
from headrace.event_time.record import BatchLog, BatchRecord, TimeBounds
from headrace.event_time.strategy import BEGINNING, END, TimeStrategy
from headrace.event_time.tracker import WatermarkTracker
from headrace.runtime.broadcast_tables import SmallTables

Clock = Callable[[], int]
"""Microseconds since the epoch."""
Reports = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""What the tasks of a batch said, by node and partition or key group."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes of one flow that time runs through, in the order of their definition."""

    sources: Mapping[str, TimeStrategy]
    steps: Mapping[str, tuple[str, ...]]
    """The inputs of each step, as ``source.<name>`` or ``step.<name>``."""
    caps: Mapping[str, int] = field(default_factory=dict)
    """The most files that a batch takes of a source, where there is such a bound."""
    divided: frozenset[str] = frozenset()
    """The sources that have partitions of their own."""
    holdbacks: Mapping[str, int] = field(default_factory=dict)
    """How far behind its input's time a step's results may be, where they may."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How a flow's rows are written: the checkpoint's generation, the driver's lease, the writers of each sink."""

    generation: int = 0
    epoch: int = 0
    writers: Mapping[str, int] = field(default_factory=dict)


WRITING_ALONE = Writing()
Partitions = Mapping[str, Collection[str]]
NO_PARTITIONS: Partitions = {}
NO_MARKS: Mapping[str, Mapping[int, int]] = {}


class Planner:
    """The time-keeper of one flow; a new one takes up where the log of the last one ended."""

    def __init__(
        self,
        topology: Topology,
        log: BatchLog,
        clock: Clock,
        *,
        interval: int = 0,
        writing: Writing = WRITING_ALONE,
        tables: SmallTables | None = None,
        is_away: Callable[[str], bool] = lambda source: False,
    ) -> None:
        self._topology = topology
        self._log = log
        self._clock = clock
        self._interval = interval
        self._writing = writing
        self._tables = tables
        self._is_away = is_away
        self._away_until: dict[str, int] = {}
        self.marks: dict[str, dict[int, int]] = {}
        self.trackers = {
            name: WatermarkTracker(strategy, divided=name in topology.divided)
            for name, strategy in topology.sources.items()
        }
        self.groups: dict[str, dict[int, dict[str, Any]]] = {step: {} for step in topology.steps}
        self._fired = dict.fromkeys(topology.steps, BEGINNING)
        self.rules_versions: dict[str, int] = {}
        """How many changes of its rules each step that has any has taken so far."""
        self.drained = False
        self._unread: set[str] = set()
        self._planned_at = self._ended_at = clock()
        last = log.last_outcome()
        if last is not None:
            self._take_up(last[1])

    def _take_up(self, outcome: dict[str, Any]) -> None:
        for name, saved in outcome["trackers"].items():
            self.trackers[name].restore(saved)
        self.groups = {
            step: {int(group): values for group, values in groups.items()} for step, groups in outcome["groups"].items()
        }
        self._fired = outcome["fired"]
        self.rules_versions = outcome["rules_versions"]
        self.drained = outcome["drained"]
        if outcome["generation"] == self._writing.generation:
            self.marks = {
                sink: {int(writer): batch for writer, batch in marks.items()}
                for sink, marks in outcome["marks"].items()
            }

    def plan(self, batch: int, *, drain: bool = False, partitions: Partitions = NO_PARTITIONS) -> BatchRecord:
        """The record of a batch: the logged one when the batch runs again, otherwise decided and logged now.

        ``partitions`` are those that each divided source has by now.
        """
        logged = self._log.record(batch)
        if logged is None:
            self._pass_time()
        # What is new has not been quiet before it was there.
        for name, found in partitions.items():
            if name in self.trackers:
                self.trackers[name].discover(found)
        record = self._decide(batch, drain) if logged is None else self._with_tables(logged)
        for name, watermark in record.watermarks.items():
            self.trackers[name].advance(watermark)
        return record

    def _pass_time(self) -> None:
        now = self._clock()
        for name, tracker in self.trackers.items():
            tracker.pass_time(self._waited(name, now))
        self._planned_at = now

    def _decide(self, batch: int, drain: bool) -> BatchRecord:
        if self.drained:
            raise HeadraceError(
                "CHECKPOINT_DRAINED",
                "the flow was drained: all its windows were closed at the end of time, so any further row would be "
                "late. Start with a new checkpoint.",
            )
        now = self._planned_at
        watermarks = {name: END if drain else tracker.watermark(clock=now) for name, tracker in self.trackers.items()}
        idle = {name for name, tracker in self.trackers.items() if tracker.is_idle() and not drain}
        time_bounds = self._time_bounds(watermarks, idle, now)
        writing = self._writing
        record = BatchRecord(
            batch,
            now,
            watermarks,
            time_bounds,
            self._due(time_bounds),
            drain,
            writing.generation,
            writing.writers,
            writing.epoch,
            {} if self._tables is None else self._tables.versions(now),
        )
        self._log.write_record(record)
        return record

    def _with_tables(self, logged: BatchRecord) -> BatchRecord:
        """A logged record; a step with a small table that was added since it was written takes the table as it is."""
        if self._tables is None or self._tables.steps.keys() <= logged.tables.keys():
            return logged
        record = replace(logged, tables={**self._tables.versions(logged.clock), **logged.tables})
        self._log.write_record(record)
        return record

    def _waited(self, source: str, now: int) -> int:
        """How long the idle clocks of a source have run since the last batch was planned.

        They stand still while a batch overruns its interval, while the source may hold rows that were not read, and
        while it does not answer.
        """
        if self._is_away(source):
            self._away_until[source] = now
        if source in self._unread:
            return 0
        overran = self._ended_at - self._planned_at > self._interval
        since = self._ended_at if overran else self._planned_at
        return max(0, now - max(since, self._away_until.get(source, since)))

    def _time_bounds(self, watermarks: Mapping[str, int], idle: Collection[str], clock: int) -> dict[str, TimeBounds]:
        time_bounds: dict[str, TimeBounds] = {}
        for step, inputs in self._topology.steps.items():
            late, fire = [], []
            # An input that is idle as a whole does not hold up the other, unless that is idle too.
            for node in [each for each in inputs if not self._is_idle(each, idle)] or inputs:
                kind, name = node.split(".", 1)
                late.append(watermarks[name] if kind == "source" else self._held_back(name, self._fired[name]))
                fire.append(watermarks[name] if kind == "source" else self._held_back(name, time_bounds[name].fire))
            # Time does not go back when an idle input wakes.
            fired = self._fired[step]
            time_bounds[step] = TimeBounds(max(fired, min(late)), max(fired, min(fire)), fired, clock)
        return time_bounds

    def _is_idle(self, node: str, idle: Collection[str]) -> bool:
        kind, name = node.split(".", 1)
        return (
            name in idle if kind == "source" else all(self._is_idle(each, idle) for each in self._topology.steps[name])
        )

    def _held_back(self, step: str, time: int) -> int:
        """Up to where the results of a step are complete when its input is up to ``time``."""
        return time - self._topology.holdbacks.get(step, 0) if BEGINNING < time < END else time

    def _due(self, time_bounds: Mapping[str, TimeBounds]) -> dict[str, tuple[int, ...]]:
        return {
            step: tuple(
                group
                for group, values in self.groups[step].items()
                if _is_due(values["due"], bounds.fire) or _is_due(values["due_clock"], bounds.clock)
            )
            for step, bounds in time_bounds.items()
        }

    def wants_batch(self) -> bool:
        """Whether something is due now that no row would wake."""
        now = self._clock()
        waited = {name: self._waited(name, now) for name in self.trackers}
        watermarks = {
            name: tracker.watermark(clock=now, waited=waited[name]) for name, tracker in self.trackers.items()
        }
        idle = {name for name, tracker in self.trackers.items() if tracker.is_idle(waited=waited[name])}
        return any(self._due(self._time_bounds(watermarks, idle, now)).values())

    def conclude(
        self, record: BatchRecord, reports: Reports, marks: Mapping[str, Mapping[int, int]] = NO_MARKS
    ) -> None:
        """Take in what a batch's tasks and sinks said and log what the next batch starts from."""
        for name, tracker in self.trackers.items():
            highest: dict[str, int] = {}
            for report in reports.get(f"source.{name}", {}).values():
                for partition, time in report["highest"].items():
                    highest[partition] = max(time, highest.get(partition, BEGINNING))
            tracker.observe(highest, unread=[partition for partition, rows in unread(reports, name).items() if rows])
        self._unread = {
            name
            for name, cap in self._topology.caps.items()
            if sum(report["origins"] for report in reports.get(f"source.{name}", {}).values()) >= cap
        }
        for step in self._topology.steps:
            for group, report in reports.get(f"state.{step}", {}).items():
                self.groups[step][group] = {name: report[name] for name in ("due", "due_clock", "rows", "bytes")}
            changes = reports.get(f"step.{step}.rules")
            if changes is not None:
                taken = sum(report["accepted"] for report in changes.values())
                self.rules_versions[step] = self.rules_versions.get(step, 0) + taken
        self._fired = {step: bounds.fire for step, bounds in record.time_bounds.items()}
        self.drained = self.drained or record.drain
        for sink, marked in marks.items():
            self.marks.setdefault(sink, {}).update(marked)
        self._log.write_outcome(
            record.batch,
            {
                "trackers": {name: tracker.to_json() for name, tracker in self.trackers.items()},
                "groups": self.groups,
                "fired": self._fired,
                "rules_versions": self.rules_versions,
                "drained": self.drained,
                "generation": record.generation,
                "marks": self.marks,
            },
        )
        if self._tables is not None:
            self._tables.forget(record.tables)
        self._ended_at = self._clock()


def _is_due(time: int | None, bound: int) -> bool:
    return time is not None and time <= bound


def unread(reports: Reports, source: str) -> dict[str, int]:
    """How many rows wait in each partition of a source behind those that a batch has read."""
    waiting: dict[str, int] = {}
    for report in reports.get(f"source.{source}", {}).values():
        for partition, rows in report.get("unread", {}).items():
            # Several tasks may have read of one partition; the one that read furthest left the least.
            waiting[partition] = min(rows, waiting.get(partition, rows))
    return waiting
