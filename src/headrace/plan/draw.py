"""The graph as Mermaid text."""

from __future__ import annotations

from headrace.graph import Graph


def mermaid(graph: Graph) -> str:
    """Sources, steps and sinks with the edges between them."""
    lines = ["flowchart LR"]
    lines += [f'    source.{name}[("{name}")]' for name in graph.sources]
    for name, node in graph.steps.items():
        lines.append(f'    step.{name}["{name}<br/>{node.step.fingerprint["kind"]}"]')
        lines += [f"    {given} --> step.{name}" for given in dict.fromkeys(node.inputs)]
    for flow in graph.flows.values():
        last = f"step.{flow.steps[-1]}" if flow.steps else f"source.{flow.sources[0]}"
        for number, sink in enumerate(flow.main_sinks):
            lines.append(f'    {last} --> flow.{flow.name}.{number}["{_label(sink)}"]')
        for side, sinks in flow.side_sinks:
            for number, sink in enumerate(sinks):
                place = f"flow.{flow.name}.{side.step}.{side.name}.{number}"
                lines.append(f'    step.{side.step} -. {side.name} .-> {place}["{_label(sink)}"]')
    return "\n".join(lines)


def _label(sink: object) -> str:
    return repr(sink).replace('"', "'")
