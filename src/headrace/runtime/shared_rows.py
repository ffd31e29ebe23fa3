"""Rows that a flow needs more than once: computed once in a batch, and kept while its outputs are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import itemgetter

from pyspark.sql import DataFrame

from headrace.graph import FlowNode, Graph, Origin, PackedOrigin, PassedOrigin, rows_as_they_are
from headrace.operators.origins import part_of, whole_of
from headrace.operators.placement import pack_origin, pass_origin, passed_frame, shuffled
from headrace.plans import Plan


@dataclass(frozen=True, slots=True)
class SharedRows:
    """A frame that is kept: the rows of a source or step, or what several steps get of them, packed in one pass."""

    frame: DataFrame
    packed: tuple[tuple[DataFrame, DataFrame], ...] = ()
    """The frames of steps packed alone, or their results, each with what is made of the step's part of the frame."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a flow shares; nothing where it reads every source and step once."""

    rows: list[SharedRows]
    """The rows of a node before what is packed of them."""
    replaced: list[tuple[DataFrame, DataFrame]]
    """Frames in which a step reads in the function of a node, each with one that reads the node's kept rows."""
    read_again: frozenset[int]
    """The ids of origins with several readers."""


@dataclass(slots=True)
class _Readers:
    """What reads an origin: steps with state, steps without, and an author's plans that take its rows as a frame."""

    origin: Origin
    parts: list[PackedOrigin] = field(default_factory=list)
    passed: list[PassedOrigin] = field(default_factory=list)
    as_rows: int = 0

    @property
    def several(self) -> bool:
        return len(self.parts) + len(self.passed) + self.as_rows > 1

    @property
    def passes(self) -> int:
        """How often it is read when all that is packed of it is packed in one pass."""
        return min(len(self.parts), 1) + len(self.passed) + self.as_rows


def shared_rows(graph: Graph, flow: FlowNode) -> Sharing:
    """What the outputs of a flow share."""
    readers = _readers(graph, flow)
    shared: list[tuple[int, SharedRows]] = []
    """With the number of nodes behind them: those of a step come after those that it reads."""
    moved: dict[int, Origin] = {}
    """Where origins are read instead, by their ids."""
    for each in readers:
        frame = graph.frame_of_origin(each.origin)
        if frame is not None and each.passes > 1:
            shared.append((len(each.origin.nodes), SharedRows(frame)))
            moved[id(each.origin)] = Origin(frame, rows_as_they_are, each.origin.nodes)
    replaced = list(_passed_from_there(graph, flow, moved))
    for each in readers:
        origin = moved.get(id(each.origin), each.origin)
        if len(each.parts) > 1:
            shared.append((len(origin.nodes), _packed_together(graph, origin, each.parts, moved)))
        elif origin is not each.origin:
            replaced += [(part.frame, _packed(graph, origin, part)) for part in each.parts]
    again = frozenset(id(each.origin) for each in readers if each.several)
    return Sharing([rows for _, rows in sorted(shared, key=itemgetter(0))], replaced, again)


def _readers(graph: Graph, flow: FlowNode) -> list[_Readers]:
    """The readers of every origin in a flow."""
    found: dict[int, _Readers] = {}

    def of(origin: Origin) -> _Readers:
        return found.setdefault(id(origin), _Readers(origin))

    for node in (graph.steps[name] for name in flow.steps):
        for part in node.packed:
            of(part.origin).parts.append(part)
        if node.passed is not None:
            of(whole_of(node.passed.origin)[0]).passed.append(node.passed)
    frames = [main.frame for main in flow.mains]
    for each in found.values():
        if graph.frame_of_origin(each.origin) is None:
            frames += [each.origin.stream] * each.passes
    for frame in frames:
        for function in _nearest(graph, Plan.of(frame, inlined=True)):
            of(graph.functions[function][1]).as_rows += 1
    return list(found.values())


def _nearest(graph: Graph, plan: Plan) -> Iterator[int]:
    """The functions of the nodes of ours in a plan that no other lies above."""
    function = plan.function
    if function is not None and function in graph.functions:
        yield function
    else:
        for child in plan.children:
            yield from _nearest(graph, child)


def _passed_from_there(graph: Graph, flow: FlowNode, moved: dict[int, Origin]) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The frames of steps without state behind origins that have moved; unless their rows are shared, they move too."""
    for passed in filter(None, (graph.steps[name].passed for name in flow.steps)):
        whole, condition = whole_of(passed.origin)
        if (there := moved.get(id(whole))) is not None:
            given = there if condition is None else part_of(there, condition)
            origin = pass_origin(given, passed.operator, graph)
            yield passed.frame, passed_frame(origin, passed.frame.schema, graph)
            moved.setdefault(id(graph.origin_of(passed.frame)), origin)


def _packed_together(graph: Graph, origin: Origin, parts: list[PackedOrigin], moved: dict[int, Origin]) -> SharedRows:
    """What steps get of an origin, packed in one pass; and shuffled together, unless one of them reads another too."""
    inputs = [replace(each, step=number) for number, part in enumerate(parts) for each in part.inputs]
    names = [part.inputs[0].operator.name for part in parts]
    frame = pack_origin(origin, inputs, graph, name=f"headrace.step.{'+'.join(names)}")
    together = all(len(graph.steps[name].packed) == 1 for name in names)
    if together:
        frame = shuffled([frame], graph.slots)
    replaced = [(part.frame, frame.where(f"step = {number}")) for number, part in enumerate(parts)]
    for name, (_, rows) in zip(names, replaced[:], strict=True) if together else ():
        main = graph.main_outputs[name]
        own = graph.origin_of(main)
        there = replace(own, stream=rows)
        moved.setdefault(id(own), there)
        replaced.append((main, passed_frame(there, main.schema, graph)))
    return SharedRows(frame, tuple(replaced))


def _packed(graph: Graph, origin: Origin, part: PackedOrigin) -> DataFrame:
    return pack_origin(origin, part.inputs, graph, name=f"headrace.step.{part.inputs[0].operator.name}")
