"""Chains: a step with the key of the step before it runs in the same task, without a shuffle in between."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame

from headrace.graph import FlowNode, Graph, Origin, StepNode
from headrace.operators.placement import pack_origin, shuffled
from headrace.wheel.spark import chained, mapped
from headrace.wheel.task import current_task


def chains(graph: Graph, flow: FlowNode, read_again: Collection[int]) -> list[tuple[DataFrame, DataFrame]]:
    """The main outputs of steps that a chain changes, each with the frame that takes its place.

    Origins that are read again, known by their ids, are shared instead, and so are those of a flow with several
    outputs.
    """
    nodes = [graph.steps[name] for name in graph.stateful(flow.steps)]
    owners = {id(graph.origin_of(graph.main_outputs[node.step.name])): node for node in nodes}
    changed: dict[int, Origin] = {}
    replaced: list[tuple[DataFrame, DataFrame]] = []
    for node in nodes if len(flow.mains) == 1 else ():
        main, label = graph.main_outputs[node.step.name], f"headrace.state.{node.step.name}"
        own = graph.origin_of(main)
        parts = [replace(part, origin=changed.get(id(part.origin), part.origin)) for part in node.packed]
        given = parts[0].origin
        before = id(node.packed[0].origin)
        if before not in read_again and _follows(node, owners.get(before)):
            read = partial(chained, before=given.read, operator=parts[0].inputs[0].operator)
            origin = replace(own, stream=given.stream, read=read, label=f"{given.label}{label}+")
        elif any(id(part.origin) in changed for part in node.packed):
            name = f"headrace.step.{node.step.name}"
            packed = [
                pack_origin(part.origin, part.inputs, graph, name=name) if id(given.origin) in changed else given.frame
                for part, given in zip(parts, node.packed, strict=True)
            ]
            origin = replace(own, stream=shuffled(packed, graph.slots))
        else:
            continue
        if id(own) not in read_again:
            changed[id(own)] = origin
        this_task = partial(current_task, graph.reports)
        frame = mapped(origin.stream, origin.read, main.schema, this_task, name=origin.label.removesuffix("+"))
        replaced.append((main, frame))
    return replaced


def _follows(node: StepNode, before: StepNode | None) -> bool:
    """Whether a step gets its rows straight from another one that divides them by the same key."""
    inputs = [each for part in node.packed for each in part.inputs]
    if before is None or not before.step.keeps_key or len(inputs) != 1 or inputs[0].condition is not None:
        return False
    return bool(inputs[0].operator.key == before.packed[0].inputs[0].operator.key)
