"""Findings about a definition, before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.durations import spoken
from headrace.errors import HeadraceError
from headrace.graph import Graph

TTL_MARGIN = 1.5


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; its message says what, why and what to do."""

    id: str
    severity: Literal["error", "warning", "note"]
    step: str | None
    message: str

    @classmethod
    def of(cls, error: HeadraceError) -> Finding:
        """An error that the pipeline would end with."""
        return cls(error.id, "error", None, str(error))

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"


def findings(graph: Graph) -> list[Finding]:
    """Warnings and notes about a graph; mistakes are errors when it is defined."""
    return [*_clocks(graph), *_late_rows(graph), *_sinks(graph), *_short_ttls(graph)]


def _clocks(graph: Graph) -> Iterator[Finding]:
    for name in graph.stateful(graph.steps):
        for given in dict.fromkeys(map(graph.time_node, graph.steps[name].inputs)):
            if given.kind == "source" and (kind := graph.sources[given.name].time.kind) != "event":
                message = (
                    f"step {name!r} windows rows by {kind} time, so results depend on when rows arrive and cannot be "
                    "computed again. Use hr.event_time(...) for anything but monitoring."
                )
                yield Finding("ARRIVAL_TIME_IN_WINDOW", "warning", name, message)


def _late_rows(graph: Graph) -> Iterator[Finding]:
    written = {(side.step, side.name) for flow in graph.flows.values() for side, _ in flow.side_sinks}
    for flow, step in [(each, name) for each in graph.flows.values() for name in each.steps]:
        kept = [name for name in graph.steps[step].side_outputs if name in ("late", "late_right")]
        if not kept and graph.steps[step].step.lateness is not None:
            message = f"step {step!r} counts late rows and drops them. Use hr.side_output() to keep them."
            yield Finding("LATE_ROWS_DROPPED", "note", step, message)
        for output in kept:
            if (step, output) not in written:
                message = (
                    f"late rows of step {step!r} go to <checkpoint>/{flow.name}/{output}/{step}. To send them "
                    f"elsewhere, use outputs = step.outputs(...) and hr.write({flow.name!r}, ..., "
                    f"(outputs.{output}, sink))."
                )
                yield Finding("LATE_ROWS_IN_CHECKPOINT", "note", step, message)


def _sinks(graph: Graph) -> Iterator[Finding]:
    for flow in graph.flows.values():
        for _, sink in flow.sinks:
            if sink.guarantee != "exactly_once":
                message = (
                    f"flow {flow.name!r}: {sink!r} may show a batch again after a crash. "
                    "Use a sink with exactly_once where that matters."
                )
                yield Finding("SINK_AT_LEAST_ONCE", "warning", None, message)


def _short_ttls(graph: Graph) -> Iterator[Finding]:
    """State that is forgotten while rows that belong to it may still come."""
    for flow in graph.flows.values():
        steps = [graph.steps[name].step for name in flow.steps]
        longest = max((step.horizon + step.retention for step in steps), default=0)
        times = [graph.sources[name].time for name in flow.sources]
        out_of_order = max((time.out_of_order for time in times if time is not None), default=0)
        least = round(TTL_MARGIN * (longest + out_of_order))
        for step, state in [(each, state) for each in steps for state in each.states]:
            if state.time == "event" and state.ttl is not None and state.ttl < least:
                message = (
                    f"state {state.name!r} of step {step.name!r} lives {spoken(state.ttl)}, but rows of this flow "
                    f"may belong together over {spoken(longest)} and come {spoken(out_of_order)} out of order, so "
                    f"it may be forgotten while it is still needed. The least safe ttl is {TTL_MARGIN} times both: "
                    f"ttl={spoken(least)!r}."
                )
                yield Finding("TTL_SHORT", "warning", step.name, message)
