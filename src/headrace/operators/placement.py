"""Putting a step into the plan: find its inputs' time, bind the operator, record the node, build the Spark frame."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from headrace.errors import DefinitionError
from headrace.event_time.strategy import tagged, tagged_node, time_fields
from headrace.graph import Graph, Origin, PackedOrigin, PassedOrigin, SideOutput, StepNode, graph_behind
from headrace.nodes import NodeId, StepDefinition
from headrace.operators.changelog_guard import check_events, check_not_a_changelog
from headrace.operators.origins import whole_of
from headrace.operators.unsupported_operations import UnsupportedOperations
from headrace.operators.versions import marked
from headrace.schemas import polars_schema, spark_schema
from headrace.wheel.operator import AnyOperator
from headrace.wheel.pack import Input
from headrace.wheel.spark import by_slot, gathered, mapped, packed, passed, rows_in_order, turned
from headrace.wheel.stateless import Stateless
from headrace.wheel.task import current_task

if TYPE_CHECKING:
    from headrace.operators.step import Step


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """All outputs of a step by name: ``main`` is a DataFrame, the others are handles that ``hr.write`` takes."""

    main: DataFrame
    late: SideOutput
    side: Mapping[str, SideOutput] = field(default_factory=dict)

    def __getattr__(self, name: str) -> SideOutput:
        """A side output that the step declares, such as ``timed_out``."""
        try:
            return self.side[name]
        except KeyError:
            known = ", ".join(("main", "late", *self.side))
            raise AttributeError(f"the step has no output {name!r}; its outputs are {known}") from None


def _time_of(frame: DataFrame, graph: Graph, *, step: str, changelog: bool) -> StructField:
    """The event time of a frame that a step reads; an error if the step cannot read it."""
    times = time_fields(frame.schema)
    if not times:
        raise DefinitionError(
            "EVENT_TIME_MISSING",
            f"step {step!r} needs event time, but none of the columns {', '.join(frame.columns)} carries it. "
            "Apply hr.event_time(...) to the source, and keep its column (or a window) unchanged in every select.",
        )
    node = tagged_node(times[0])
    giver = graph.time_node(node)
    if giver.kind == "step":
        check_input(step, graph.steps[giver.name].step, frame.columns, changelog=changelog)
    sources, _ = graph.nodes_in(frame)
    if set(sources) != graph.sources_behind(node):
        raise DefinitionError(
            "SOURCES_UNITED",
            f"step {step!r} reads a union of the sources {', '.join(sources)}, whose watermarks differ. "
            "Give each source a step of its own.",
        )
    if not changelog:
        check_events(frame, graph, giver, step=step)
    return times[0]


def place(step: Step, *frames: DataFrame) -> StepOutputs:
    """Put a step after one or two frames of the active pipeline."""
    graph = graph_behind(*frames, reader=f"step {step.name!r}")
    for frame in frames:
        UnsupportedOperations(f"step {step.name!r}", graph.is_node).check(frame)
    times = [
        _time_of(frame, graph, step=step.name, changelog=number in step.changelogs)
        for number, frame in enumerate(frames)
    ]
    step.check_inputs(len(frames))
    before = tuple(tagged_node(time) for time in times)
    origins = [graph.origin_of(frame) for frame in frames]
    wholes = [whole_of(origin) for origin in origins]
    shared = sorted(set.intersection(*(graph.sources_behind(each) for each in before)))
    one_read = all(whole is wholes[0][0] and condition is not None for whole, condition in wholes)
    if shared and len(frames) > 1 and not one_read:
        # Each task reports what it read of a source, so a source that is read twice would be counted twice.
        raise DefinitionError(
            "SOURCE_ON_BOTH_SIDES",
            f"step {step.name!r} reads source {shared[0]!r} on both sides, so its rows would be counted twice. Use "
            "left, right = hr.split(frame, 'condition', 'condition') right before the step, or read it again under "
            "another name.",
        )
    schemas = ((polars_schema(frame.schema), time.name) for frame, time in zip(frames, times, strict=True))
    operator: AnyOperator = step.bind(*chain.from_iterable(schemas))
    parts = _packed(step.name, wholes, operator, graph)
    blobs = shuffled([part.frame for part in parts], graph.slots)
    results = partial(turned, operator=operator)
    label = f"headrace.state.{step.name}"
    node = NodeId("step", step.name)
    output = marked(tagged(spark_schema(operator.output_schema).fields, operator.output_time, node), step)
    behind = frozenset({node}).union(*(origin.nodes for origin in origins))
    # A step that reads this very frame runs in the same function.
    placed = graph.register_frame(
        mapped(blobs, results, output, partial(current_task, graph.reports), name=label),
        Origin(blobs, results, behind, f"{label}+"),
    )
    columns, state, identity = tuple(placed.columns), operator.state_schema, operator.identity
    graph.add_step(StepNode(step, before, columns, operator.side_schemas, state, identity, parts))
    graph.main_outputs[step.name] = placed
    side = {name: SideOutput(step.name, name, placed) for name in operator.side_schemas if name != "late"}
    return StepOutputs(placed, SideOutput(step.name, "late", placed), side)


def _packed(
    step: str, wholes: Sequence[tuple[Origin, pl.Expr | None]], operator: AnyOperator, graph: Graph
) -> tuple[PackedOrigin, ...]:
    """The rows of every origin as blobs for the inputs that read it."""
    inputs: dict[int, tuple[Origin, list[Input]]] = {}
    for number, (whole, condition) in enumerate(wholes):
        _, given = inputs.setdefault(id(whole), (whole, []))
        given.append(Input(operator, second=number > 0, condition=condition))
    return tuple(
        PackedOrigin(whole, tuple(given), pack_origin(whole, given, graph, name=f"headrace.step.{step}"))
        for whole, given in inputs.values()
    )


def shuffled(packed: Sequence[DataFrame], slots: int) -> DataFrame:
    """The blobs of all inputs of a step, in the tasks of their slots."""
    return by_slot(reduce(lambda left, right: left.union(right), packed), slots)


def pack_origin(origin: Origin, inputs: Sequence[Input], graph: Graph, *, name: str) -> DataFrame:
    """The rows of an origin as blobs; where it is a node's very output, both run in one function."""
    return packed(
        origin.stream, origin.read, inputs, partial(current_task, graph.reports), name=f"{origin.label}{name}"
    )


def pass_origin(origin: Origin, operator: Stateless, graph: Graph) -> Origin:
    """Where the rows that a step without state hands on come from."""
    stream, read, label = origin.stream, origin.read, f"{origin.label}headrace.step.{operator.name}"
    if operator.gathered_by:
        stream = gathered(stream, read, operator.gathered_by, partial(current_task, graph.reports), name=label)
        read, label = rows_in_order, f"headrace.step.{operator.name}"
    passing = partial(passed, read=read, operator=operator)
    return Origin(stream, passing, origin.nodes | {NodeId("step", operator.name)}, f"{label}+")


def passed_frame(origin: Origin, schema: StructType, graph: Graph) -> DataFrame:
    """The rows of a step without state, which come from this origin."""
    name = origin.label.removesuffix("+")
    return mapped(origin.stream, origin.read, schema, partial(current_task, graph.reports), name=name)


def check_chained(step: StepDefinition, earlier: StepDefinition, schema: Mapping[str, pl.DataType]) -> None:
    """A step takes the results of another as its first input, with nothing in between that selects rows."""
    changelog = 0 in step.changelogs
    check_input(step.name, earlier, schema, changelog=changelog)
    if earlier.retracts and not changelog:
        check_not_a_changelog(schema, f"step {earlier.name!r}", step=step.name)


def check_input(name: str, earlier: StepDefinition, columns: Collection[str], *, changelog: bool = False) -> None:
    """A step takes results only if none is replaced later, unless as a changelog, and if corrections are marked."""
    if changelog and earlier.retracts:
        return
    if earlier.previews:
        raise DefinitionError(
            "PREVIEWS_INTO_STEP",
            f"step {name!r} reads step {earlier.name!r}, which emits results that later ones replace, so they would "
            f"be counted more than once. Let {earlier.name!r} emit every result once: hr.on_close() and "
            "hr.accumulating(), for sessions also without hr.update_for, for hr.global_window hr.discarding(). Or "
            "aggregate with hr.table_aggregate.",
        )
    if earlier.corrects and "pane" not in columns:
        raise DefinitionError(
            "PANE_MISSING",
            f"step {name!r} reads step {earlier.name!r} without its column 'pane', which tells corrections from "
            f"first results. Keep the column, or let {earlier.name!r} not correct: .late(hr.side_output()).",
        )


def place_stateless(step: Step, *frames: DataFrame) -> StepOutputs:
    """Put a step without state after a frame, which may lack an event time: one ``mapInArrow``, named and counted.

    The next step reads by the time and the watermark of the node before this one.
    """
    step.check_inputs(len(frames))
    frame, graph = frames[0], graph_behind(frames[0], reader=f"step {step.name!r}")
    sources, steps = graph.nodes_in(frame)
    UnsupportedOperations(f"step {step.name!r}", graph.is_node).check(frame)
    times = time_fields(frame.schema)
    operator: Stateless = step.bind(polars_schema(frame.schema), times[0].name if times else None)
    given = graph.origin_of(frame)
    origin = pass_origin(given, operator, graph)
    node, before = NodeId("step", step.name), NodeId("step", steps[-1]) if steps else NodeId("source", sources[0])
    schema = spark_schema(operator.output_schema)
    if times:
        schema, before = tagged(schema.fields, times[0].name, node), tagged_node(times[0])
    placed = graph.register_frame(passed_frame(origin, schema, graph), origin)
    graph.add_step(StepNode(step, (before,), tuple(placed.columns), passed=PassedOrigin(given, operator, placed)))
    return StepOutputs(placed, SideOutput(step.name, "late", placed))
