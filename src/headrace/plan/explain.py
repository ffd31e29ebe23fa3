"""A pipeline as text: in words, and as a Mermaid graph."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.connectors.base.sink import TaskSink
from headrace.durations import spoken
from headrace.event_time.strategy import TimeStrategy
from headrace.graph import FlowNode, Graph
from headrace.nodes import NodeId, StepDefinition
from headrace.state.group_range import KEY_GROUPS


def explanation(graph: Graph) -> str:
    """The text of ``explain()``."""
    flows = (line for flow in graph.flows.values() for line in _flow(graph, flow))
    return "\n".join([f"pipeline {graph.pipeline}", *flows])


def _flow(graph: Graph, flow: FlowNode) -> list[str]:
    lines = [f"  flow {flow.name}"]
    for name in flow.sources:
        source = graph.sources[name]
        lines.append(f"    source {name}: {_place(source.fingerprint)}, {source.time!r}")
        if source.queried:
            lines.append("      read by a query of Spark: its partitions and how many rows wait are not known")
        if source.time is not None and source.time.kind == "event":
            ahead = source.time.accept.max_future
            guard = "no limit on future times" if ahead is None else f"more than {spoken(ahead)} ahead is a dead letter"
            named = "each partition" if source.divided else "the whole source"
            whole = named if source.time.partition is None else f"each {source.time.partition}"
            lines.append(
                f"      watermark: highest time seen - {spoken(source.time.out_of_order)}, one for {whole}; {guard}"
            )
            lines += _expected(source.time)
    for name in flow.steps:
        node = graph.steps[name]
        lines.append(f"    step {name}: {node.step!r}")
        read = dict.fromkeys(node.inputs)
        both = " on both sides" if len(read) < len(node.inputs) else ""
        lines.append(f"      reads {', '.join(map(str, read))}{both}; columns {', '.join(node.columns)}")
        lines.append(f"      state: {node.step.state_description}{_kept(node.step, graph)}")
    for output, sink in flow.sinks:
        lines.append(f"    {output} -> {sink!r}: {sink.guarantee}")
        lines += [] if sink.why is None else [f"      {sink.why}"]
    lines.append(f"    dead letters -> <checkpoint>/{flow.name}/dead_letters: exactly_once")
    return lines


def _kept(step: StepDefinition, graph: Graph) -> str:
    """Over how much the state of a step is divided."""
    if step.stateless:
        return ""
    if not step.key and (step.spread or 1) == 1:
        return "; in one slot: the whole stream is one key"
    return f"; in {graph.key_groups or KEY_GROUPS} key groups"


def _expected(time: TimeStrategy) -> list[str]:
    """What is said of partitions that hold the watermark before they have a row."""
    if not time.expected:
        return []
    number = time.expected if isinstance(time.expected, int) else len(time.expected)
    for_long = "for ever, because idle=None" if time.idle is None else f"for {spoken(time.idle)} at most"
    return [f"      each of {number:,} expected values holds the watermark before its first row, {for_long}"]


def _place(source: Mapping[str, object]) -> str:
    kind, topics = source["kind"], source.get("topics")
    return f"{kind} {' '.join(topics)}" if isinstance(topics, list) else str(source.get("path", kind))


def mermaid(graph: Graph) -> str:
    """Sources, steps and sinks with the edges between them."""
    lines = ["flowchart LR"]
    lines += [f'    {NodeId("source", name)}[("{name}")]' for name in graph.sources]
    for name, node in graph.steps.items():
        here = NodeId("step", name)
        lines.append(f'    {here}["{name}<br/>{node.step.fingerprint["kind"]}"]')
        lines += [f"    {given} --> {here}" for given in dict.fromkeys(node.inputs)]
    for flow in graph.flows.values():
        written = [(main.frame, sink) for main in flow.mains for sink in main.sinks]
        for number, (frame, sink) in enumerate(written):
            sources, steps = graph.nodes_in(frame)
            last = NodeId("step", steps[-1]) if steps else NodeId("source", sources[0])
            lines.append(f'    {last} --> flow.{flow.name}.{number}["{_label(sink)}"]')
        for side, sinks in flow.side_sinks:
            for number, sink in enumerate(sinks):
                place = f"flow.{flow.name}.{side.step}.{side.name}.{number}"
                lines.append(f'    {NodeId("step", side.step)} -. {side.name} .-> {place}["{_label(sink)}"]')
    return "\n".join(lines)


LONGEST_LABEL = 60


def _label(sink: object) -> str:
    """What a box says of a sink: what is written and where, the middle left out if that is long."""
    text = sink.place if isinstance(sink, TaskSink) else repr(sink)
    half = LONGEST_LABEL // 2
    return (text if len(text) <= LONGEST_LABEL else f"{text[:half]}...{text[-half:]}").replace('"', "'")
