"""Time of one flow: the watermark of each source, the time bounds of each step, and what is due in each batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.event_time.record import BatchOutcome, BatchRecord, SourceRead, TimeBounds
from headrace.event_time.strategy import BEGINNING, END, TimeStrategy
from headrace.event_time.tracker import WatermarkTracker
from headrace.nodes import NodeId
from headrace.reports import BatchReports, SlotSummary
from headrace.state.group_range import GroupRange

Clock = Callable[[], int]
"""Microseconds since the epoch."""
Reads = Mapping[str, SourceRead]
"""What a batch reads of each source."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes of one flow that time runs through, in the order of their definition."""

    sources: Mapping[str, TimeStrategy]
    steps: Mapping[str, tuple[NodeId, ...]]
    """The inputs of each step that has state: sources and such steps."""
    divided: frozenset[str] = frozenset()
    """The sources that have partitions of their own."""
    holdbacks: Mapping[str, int] = field(default_factory=dict)
    """How far behind its input's time a step's results may be, where they may."""


class TimeKeeper:
    """Computes the time of each batch from what the batches before it have read."""

    def __init__(
        self,
        topology: Topology,
        clock: Clock,
        *,
        interval: int = 0,
        is_away: Callable[[str], bool] = lambda source: False,
    ) -> None:
        self._topology = topology
        self._clock = clock
        self._interval = interval
        self._is_away = is_away
        self._away_until: dict[str, int] = {}
        self.trackers = {
            name: WatermarkTracker(strategy, divided=name in topology.divided)
            for name, strategy in topology.sources.items()
        }
        self.slots: dict[str, dict[int, SlotSummary]] = {step: {} for step in topology.steps}
        self.clock_before = BEGINNING
        self.fired: Mapping[str, int] = dict.fromkeys(topology.steps, BEGINNING)
        """The time up to which each step has fired everything."""
        self._planned_at = self._ended_at = clock()

    def restore(self, outcome: BatchOutcome) -> None:
        for name, saved in outcome.trackers.items():
            self.trackers[name].restore(saved)
        self.slots = {**self.slots, **{step: dict(slots) for step, slots in outcome.slots.items()}}
        self.clock_before = outcome.clock
        self.fired = {**self.fired, **outcome.fired}

    def divide(self, slots: int, key_groups: int) -> None:
        """Divide the state of every step into this many slots, unless it already is."""
        ranges = [GroupRange.of_slot(slot, slots=slots, key_groups=key_groups) for slot in range(slots)]
        for step, held in self.slots.items():
            # A slot that was never called is not among them, so their number says nothing.
            stays = all(slot < slots and each.lies_within(ranges[slot]) for slot, each in held.items())
            if not stays:
                self.slots[step] = rescaled(held, ranges)

    def pass_time(self) -> None:
        """Let the idle clocks run up to now, the moment at which the next batch is planned."""
        now = self._clock()
        for name, tracker in self.trackers.items():
            tracker.pass_time(self._waited(name, now))
        self._planned_at = now

    def discover(self, reads: Reads) -> None:
        for name, read in reads.items():
            if name in self.trackers:
                self.trackers[name].discover(read.partitions)

    def decide(self, batch: int, *, drain: bool) -> BatchRecord:
        """The time of a batch; at a drain it is the end of time."""
        now = self._planned_at
        watermarks = {name: tracker.watermark(clock=now) for name, tracker in self.trackers.items()}
        idle = {name for name, tracker in self.trackers.items() if tracker.is_idle() and not drain}
        bounds = self._time_bounds(watermarks, idle, now)
        if drain:
            # A row that such a batch brings is late by what was read before, and not because it is the last.
            bounds = {step: replace(each, fire=END) for step, each in bounds.items()}
            watermarks = dict.fromkeys(watermarks, END)
        return BatchRecord(batch, now, watermarks, bounds, self._due(bounds), drain)

    def begin(self, record: BatchRecord) -> None:
        """Fix the watermarks of a batch that begins, for the first time or again."""
        for name, watermark in record.watermarks.items():
            self.trackers[name].advance(watermark)

    def wants_batch(self) -> bool:
        """Whether something is due now that no row would wake."""
        now = self._clock()
        waiting = [(name, tracker, self._waited(name, now)) for name, tracker in self.trackers.items()]
        watermarks = {name: tracker.watermark(clock=now, waited=waited) for name, tracker, waited in waiting}
        idle = {name for name, tracker, waited in waiting if tracker.is_idle(waited=waited)}
        return any(self._due(self._time_bounds(watermarks, idle, now)).values())

    def observe(self, record: BatchRecord, reports: BatchReports) -> None:
        """Update watermarks, key groups and fired times from the reports of a batch."""
        for name, tracker in self.trackers.items():
            highest: dict[str, int] = {}
            for report in reports.of_source(name):
                for partition, time in report.highest.items():
                    highest[partition] = max(time, highest.get(partition, BEGINNING))
            unread = record.reads[name].unread if name in record.reads else {}
            tracker.observe(highest, unread=[partition for partition, rows in unread.items() if rows])
        for step in self._topology.steps:
            self.slots[step].update({slot: said.slot for slot, said in reports.states.get(step, {}).items()})
        self.clock_before = record.clock
        self.fired = {step: bounds.fire for step, bounds in record.time_bounds.items()}

    def end(self) -> None:
        """The batch is over: from now on idle clocks may run."""
        self._ended_at = self._clock()

    def _waited(self, source: str, now: int) -> int:
        """How long the idle clocks of a source have run since the last batch was planned.

        They stand still while a batch overruns its interval, and while the source does not answer.
        """
        if self._is_away(source):
            self._away_until[source] = now
        overran = self._ended_at - self._planned_at > self._interval
        since = self._ended_at if overran else self._planned_at
        return max(0, now - max(since, self._away_until.get(source, since)))

    def _time_bounds(self, watermarks: Mapping[str, int], idle: Collection[str], clock: int) -> dict[str, TimeBounds]:
        bounds: dict[str, TimeBounds] = {}
        fires: dict[str, int] = {}
        for step, inputs in self._topology.steps.items():
            # An input that is idle as a whole does not hold up the other, unless that is idle too.
            awake = [each for each in inputs if not self._is_idle(each, idle)] or inputs
            # Time does not go back when an idle input wakes.
            fired = self.fired[step]
            late = max(fired, min(self._complete_up_to(each, watermarks, self.fired) for each in awake))
            fires[step] = max(fired, min(self._complete_up_to(each, watermarks, fires) for each in awake))
            bounds[step] = TimeBounds(late, fires[step], fired, clock, self.clock_before)
        return bounds

    def _is_idle(self, node: NodeId, idle: Collection[str]) -> bool:
        if node.kind == "source":
            return node.name in idle
        return all(self._is_idle(each, idle) for each in self._topology.steps[node.name])

    def _complete_up_to(self, node: NodeId, watermarks: Mapping[str, int], fired: Mapping[str, int]) -> int:
        """Up to where the rows of a source, or the results of a step that has fired so far, are complete."""
        if node.kind == "source":
            return watermarks[node.name]
        time = fired[node.name]
        return time - self._topology.holdbacks.get(node.name, 0) if BEGINNING < time < END else time

    def _due(self, bounds: Mapping[str, TimeBounds]) -> dict[str, tuple[int, ...]]:
        return {
            step: tuple(
                slot
                for slot, held in self.slots[step].items()
                if (held.due is not None and held.due <= each.fire)
                or (held.due_clock is not None and held.due_clock <= each.clock)
            )
            for step, each in bounds.items()
        }


def rescaled(held: Mapping[int, SlotSummary], ranges: Iterable[GroupRange]) -> dict[int, SlotSummary]:
    """The same state in another number of slots; each may be due when any was."""
    segments = [segment for each in held.values() for segment in each.segments]
    due = min((each.due for each in held.values() if each.due is not None), default=None)
    due_clock = min((each.due_clock for each in held.values() if each.due_clock is not None), default=None)
    waiting = sum(each.waiting for each in held.values())
    return {
        slot: SlotSummary(
            tuple(part for segment in segments for part in segment.within(groups)),
            () if slot else held[0].shared if 0 in held else (),
            due,
            due_clock,
            0 if slot else waiting,
        )
        for slot, groups in enumerate(ranges)
    }
