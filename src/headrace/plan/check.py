"""Findings about a definition, before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.durations import spoken
from headrace.graph import Graph

TTL_MARGIN = 1.5


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; its message says what, why and what to do."""

    id: str
    severity: Literal["error", "warning", "note"]
    step: str | None
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"


def findings(graph: Graph) -> list[Finding]:
    """Warnings and notes about a graph; mistakes are errors when it is defined."""
    return [*_clocks(graph), *_late_rows(graph), *_sinks(graph), *_lives(graph)]


def _clocks(graph: Graph) -> list[Finding]:
    found = []
    for name in graph.stateful(graph.steps):
        for given in dict.fromkeys(map(graph.time_node, graph.steps[name].inputs)):
            source = graph.sources[given.name] if given.kind == "source" else None
            if source is not None and source.time.kind != "event":
                message = (
                    f"step {name!r} windows rows by {source.time.kind} time, so results depend on when rows arrive and "
                    "cannot be computed again. Use hr.event_time(...) for anything but monitoring."
                )
                found.append(Finding("ARRIVAL_TIME_IN_WINDOW", "warning", name, message))
    return found


def _late_rows(graph: Graph) -> list[Finding]:
    written = {(side.step, side.name) for flow in graph.flows.values() for side, _ in flow.side_sinks}
    found = []
    for flow in graph.flows.values():
        for step in flow.steps:
            kept = [name for name in graph.steps[step].side_outputs if name in ("late", "late_right")]
            if not kept and graph.steps[step].step.lateness is not None:
                message = f"step {step!r} counts late rows and drops them. Use hr.side_output() to keep them."
                found.append(Finding("LATE_ROWS_DROPPED", "note", step, message))
            for output in kept:
                if (step, output) not in written:
                    message = (
                        f"late rows of step {step!r} go to <checkpoint>/{flow.name}/{output}/{step}. To send them "
                        f"elsewhere, use outputs = step.outputs(...) and hr.write({flow.name!r}, ..., "
                        f"(outputs.{output}, sink))."
                    )
                    found.append(Finding("LATE_ROWS_IN_CHECKPOINT", "note", step, message))
    return found


def _sinks(graph: Graph) -> list[Finding]:
    advice = "Use a sink with exactly_once where that matters."
    messages = [
        f"flow {flow.name!r}: {sink!r} may show a batch again after a crash. {advice}"
        for flow in graph.flows.values()
        for sink in (*flow.main_sinks, *(sink for _, sinks in flow.side_sinks for sink in sinks))
        if sink.guarantee != "exactly_once"
    ]
    return [Finding("SINK_AT_LEAST_ONCE", "warning", None, message) for message in messages]


def _lives(graph: Graph) -> list[Finding]:
    """State that is forgotten while rows that belong to it may still come."""
    found = []
    for flow in graph.flows.values():
        steps = [graph.steps[name].step for name in flow.steps]
        longest = max((step.horizon + step.retention for step in steps), default=0)
        times = [graph.sources[name].time for name in flow.sources]
        out_of_order = max((time.out_of_order for time in times if time is not None), default=0)
        least = round(TTL_MARGIN * (longest + out_of_order))
        for step in steps:
            for state in step.states:
                if state.time == "event" and state.ttl is not None and state.ttl < least:
                    message = (
                        f"state {state.name!r} of step {step.name!r} lives {spoken(state.ttl)}, but rows of this flow "
                        f"may belong together over {spoken(longest)} and come {spoken(out_of_order)} out of order, so "
                        f"it may be forgotten while it is still needed. The least safe ttl is {TTL_MARGIN} times both: "
                        f"ttl={spoken(least)!r}."
                    )
                    found.append(Finding("TTL_SHORT", "warning", step.name, message))
    return found
