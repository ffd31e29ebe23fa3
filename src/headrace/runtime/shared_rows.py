"""Rows that several outputs of a flow need: computed once in a batch, and kept while the outputs are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from headrace.graph import FlowNode, Graph, Origin, PackedOrigin, rows_as_they_are
from headrace.operators.placement import pack_origin
from headrace.plans import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SharedRows:
    """A frame that is kept: the rows of a source or step, or what several steps get of them, packed in one pass."""

    frame: DataFrame
    packed: tuple[tuple[DataFrame, DataFrame], ...] = ()
    """The frames of steps packed alone, each with the step's part of the frame, which takes its place."""


def shared_rows(graph: Graph, flow: FlowNode) -> list[SharedRows]:
    """What the outputs of a flow share, the rows of a node before what is packed of them."""
    if len(flow.mains) < 2:
        return []
    readers: dict[int, tuple[Origin, list[PackedOrigin]]] = {}
    for step in graph.stateful(flow.steps):
        for part in graph.steps[step].packed:
            readers.setdefault(id(part.origin), (part.origin, []))[1].append(part)
    shared: list[tuple[int, SharedRows]] = []
    """With the number of nodes behind them: those of a step come after those that it reads."""
    for function, count in Counter(_read_as_rows(graph, flow)).items():
        frame, origin = graph.functions[function]
        _, parts = readers.pop(id(origin), (origin, []))
        if count + len(parts) > 1:
            shared.append((len(origin.nodes), SharedRows(frame)))
        if parts:
            readers[id(frame)] = Origin(frame, rows_as_they_are, origin.nodes), parts
    for origin, parts in readers.values():
        if len(parts) > 1 or origin.read is rows_as_they_are:
            shared.append((len(origin.nodes), _packed_together(graph, origin, parts)))
    return [rows for _, rows in sorted(shared, key=itemgetter(0))]


def _packed_together(graph: Graph, origin: Origin, parts: list[PackedOrigin]) -> SharedRows:
    inputs = [replace(each, step=number) for number, part in enumerate(parts) for each in part.inputs]
    steps = "+".join(dict.fromkeys(each.operator.name for each in inputs))
    frame = pack_origin(origin, inputs, graph, name=f"headrace.step.{steps}")
    return SharedRows(frame, tuple((part.frame, frame.where(f"step = {number}")) for number, part in enumerate(parts)))


def _read_as_rows(graph: Graph, flow: FlowNode) -> Iterator[int]:
    """The functions of nodes whose rows an output or another node takes as a frame, once for each that does."""
    seen: set[int] = set()
    plans = [Plan.of(main.frame) for main in flow.mains]
    while plans:
        found = list(_nearest(graph, plans.pop()))
        yield from (function for function, _ in found)
        plans += [plan.children[0] for function, plan in found if function not in seen]
        seen.update(function for function, _ in found)


def _nearest(graph: Graph, plan: Plan) -> Iterator[tuple[int, Plan]]:
    """The nodes of ours in a plan that no other lies above."""
    function = plan.function
    if function in graph.functions:
        yield function, plan
    else:
        for child in plan.children:
            yield from _nearest(graph, child)
