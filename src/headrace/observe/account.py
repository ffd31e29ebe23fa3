"""The account of a batch: every row that came in is somewhere, and the numbers add up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import TypeVar

from headrace.connectors.base.sink import Written
from headrace.errors import HeadraceError
from headrace.nodes import NodeId
from headrace.reports import BatchReports, SourceReport, StateReport


def _unbalanced(before: Mapping[str, int], after: Mapping[str, int]) -> str | None:
    """How rows before and after do not add up, if they do not."""
    if sum(before.values()) == sum(after.values()) and min(after.values()) >= 0:
        return None
    return " != ".join(" + ".join(f"{name} {rows}" for name, rows in side.items()) for side in (before, after))


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """Rows of a source: ``read = handed_on + dead``."""

    read: int = 0
    handed_on: int = 0
    dead: int = 0

    @property
    def broken(self) -> str | None:
        return _unbalanced({"read": self.read}, {"handed on": self.handed_on, "dead": self.dead})


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Rows at an input of a step: ``waited + in = accepted + late + failed + dropped + waiting``.

    Rows wait only in steps that take them in the order of their event time; there a row is accepted when it is handled.
    """

    in_: int = 0
    accepted: int = 0
    late: int = 0
    partly_late: int = 0
    dropped: int = 0
    failed: int = 0
    waited: int = 0
    waiting: int = 0

    @property
    def broken(self) -> str | None:
        gone = {"accepted": self.accepted, "late": self.late, "failed": self.failed, "dropped": self.dropped}
        return _unbalanced({"waited": self.waited, "in": self.in_}, {**gone, "waiting": self.waiting})


@dataclass(frozen=True, slots=True)
class SinkCounts:
    """Rows of a sink: ``out = written + already_marked + superseded + refused + skipped``."""

    out: int = 0
    written: int = 0
    already_marked: int = 0
    superseded: int = 0
    refused: int = 0
    skipped: int = 0

    @property
    def broken(self) -> str | None:
        there = {"written": self.written, "already marked": self.already_marked, "superseded": self.superseded}
        return _unbalanced({"out": self.out}, {**there, "refused": self.refused, "skipped": self.skipped})


C = TypeVar("C", SourceCounts, StepCounts, SinkCounts)


@dataclass(frozen=True, slots=True)
class Account:
    """Rows by source, by input of a step, and by sink."""

    sources: Mapping[str, SourceCounts] = field(default_factory=dict)
    steps: Mapping[str, StepCounts] = field(default_factory=dict)
    sinks: Mapping[str, SinkCounts] = field(default_factory=dict)
    read_once: Mapping[str, bool] = field(default_factory=dict)
    """Of each source that tasks read, whether each of its tasks ran in one place of one stage only."""

    def check(self, *, flow: str, batch: int) -> None:
        """Fail loudly, with the numbers, when an identity does not hold."""
        parts: dict[str, Mapping[str, SourceCounts | StepCounts | SinkCounts]]
        parts = {"source": self.sources, "step": self.steps, "sink of": self.sinks}
        named = [(f"{what} {name}", counts) for what, part in parts.items() for name, counts in part.items()]
        broken = [f"{name}: {counts.broken}" for name, counts in named if counts.broken is not None]
        if broken:
            raise HeadraceError(
                "ACCOUNT_BROKEN",
                f"flow {flow!r}, batch {batch}: {'; '.join(broken)}. The batch is not done; "
                "this is a defect in Headrace or in a sink, please report it with these numbers.",
            )

    def __add__(self, other: Account) -> Account:
        """The account of both.

        >>> (Account({"payments": SourceCounts(2, 2)}) + Account({"payments": SourceCounts(3, 2, 1)})).sources
        {'payments': SourceCounts(read=5, handed_on=4, dead=1)}
        """
        once = {name: self.read_once.get(name, True) and each for name, each in other.read_once.items()}
        return Account(
            _added(self.sources, other.sources),
            _added(self.steps, other.steps),
            _added(self.sinks, other.sinks),
            {**self.read_once, **once},
        )

    @property
    def read(self) -> int:
        return sum(counts.read for counts in self.sources.values())

    @property
    def dead(self) -> int:
        return sum(counts.dead for counts in self.sources.values())

    @property
    def late(self) -> int:
        return sum(counts.late for counts in self.steps.values())

    def out(self, output: str) -> int:
        """The rows of an output; where it has several sinks, those of the first.

        >>> Account(sinks={"main#1": SinkCounts(3, 3), "main#2": SinkCounts(3, 3)}).out("main")
        3
        """
        return sum(self.sinks[name].out for name in (output, f"{output}#1") if name in self.sinks)


def _added(one: Mapping[str, C], other: Mapping[str, C]) -> dict[str, C]:
    return {name: _summed([each[name] for each in (one, other) if name in each]) for name in {**one, **other}}


def _summed(counted: Sequence[C]) -> C:
    return type(counted[0])(*map(sum, zip(*map(astuple, counted), strict=True)))


def account_of(reports: BatchReports, written: Mapping[str, Written]) -> Account:
    """The account of a batch from what its tasks and sinks reported."""
    steps = {
        node: _summed(
            [StepCounts(r.in_, r.accepted, r.late, r.partly_late, r.dropped, r.failed) for r in parts.values()]
        )
        for node, parts in reports.inputs.items()
    }
    for name, states in reports.states.items():
        # Spark leaves out the input of a step that brings nothing, so its state may be all that reports.
        node = NodeId("step", name)
        steps[node] = _after_state(steps.get(node, StepCounts()), states.values())
        for state in states.values():
            for second, dropped in state.dropped_second.items():
                if dropped:
                    node = NodeId("step", name, second)
                    counts = steps[node]
                    steps[node] = replace(counts, accepted=counts.accepted - dropped, dropped=counts.dropped + dropped)
    return Account(
        {
            name: _summed([SourceCounts(r.read, r.handed_on, r.dead) for r in parts.values()])
            for name, parts in reports.sources.items()
        },
        {node.path: counts for node, counts in steps.items()},
        {
            output: SinkCounts(each.out, each.rows, each.already_marked, each.superseded, each.refused, each.skipped)
            for output, each in written.items()
        },
        {
            name: all(len(report.readings) == 1 for report in parts.values())
            for name, parts in reports.sources.items()
            if any(report.readings for report in parts.values())
        },
    )


def _after_state(counts: StepCounts, states: Collection[StateReport]) -> StepCounts:
    """The state may find rows late, repeated or bad that the map side had accepted."""
    late = sum(state.late for state in states)
    dropped = sum(state.dropped for state in states)
    failed = sum(state.failed for state in states)
    waits = [state.waiting for state in states if state.waiting is not None]
    return replace(
        counts,
        accepted=sum(each.handled for each in waits) if waits else counts.accepted - late - dropped - failed,
        late=counts.late + late,
        dropped=counts.dropped + dropped,
        failed=counts.failed + failed,
        waited=sum(each.before for each in waits),
        waiting=sum(each.after for each in waits),
    )


def step_counters(reports: BatchReports) -> dict[str, dict[str, int]]:
    """The per-step counters beside the account, such as partial matches beyond the limit."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for node, parts in reports.nodes():
        for report in parts.values():
            if not isinstance(report, SourceReport) and report.counters:
                found[node.path].update(report.counters)
    return {step: dict(counters) for step, counters in found.items()}
