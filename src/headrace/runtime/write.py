"""``hr.write``: one flow, which is one loop with one log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame

from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.sink import AnySink, DriverSink, Sink, TaskSink, UserSink
from headrace.errors import DefinitionError, user_line
from headrace.graph import FlowNode, Graph, MainOutput, Origin, SideOutput, graph_behind
from headrace.operators.changelog_guard import is_changelog
from headrace.operators.unsupported_operations import UnsupportedOperations
from headrace.operators.versions import versions_of
from headrace.plans import Plan
from headrace.stability import stable
from headrace.wheel.side_rows import side_frame


@stable
def write(name: str, *outputs: Any) -> None:
    """Write a frame to a sink, or several outputs, each to one or more sinks, as one flow.

    ``hr.write("spend", frame, sink)`` writes one frame to one sink.
    ``hr.write("spend", (hourly.main, sink, another), (hourly.late, sink), (daily.main, sink))`` writes several outputs
    of one or more steps; a source that they share is read once, and a batch is done in all sinks or in none. A sink is
    one of ``hr.to_...``, or an object of any class with ``guarantee`` and ``write`` (``hr.Sink``).

    >>> import headrace as hr
    >>> @hr.pipeline
    ... def spend(spark):
    ...     payments = hr.generate(spark, hr.Payments(), name="payments")
    ...     hr.write("spend", payments, hr.to_console())
    >>> spend.name
    'spend'
    """
    if not outputs:
        raise DefinitionError(
            "FLOW_EMPTY",
            f"flow {name!r} writes nothing. Give it a frame and a sink, as in hr.write(name, frame, sink).",
        )
    pairs = outputs if all(isinstance(output, tuple) for output in outputs) else (outputs,)
    given = [(output, _sinks(name, sinks)) for output, *sinks in pairs]
    main = [(output, sinks) for output, sinks in given if not isinstance(output, SideOutput)]
    side = [(output, sinks) for output, sinks in given if isinstance(output, SideOutput)]
    graph = graph_behind(*(frame for frame, _ in main), reader=f"flow {name!r}")
    mains = _mains(graph, main, [output for output, _ in side])
    node = FlowNode(name, mains, tuple(side), *graph.nodes_in(*(each.frame for each in mains)), line=user_line())
    _check(graph, node)
    _check_read_once(graph, node)
    _check_changes(graph, node)
    _check_operations(graph, node)
    graph.add_flow(node)


MAIN = "main"


def _mains(
    graph: Graph, given: Sequence[tuple[DataFrame, tuple[AnySink, ...]]], side: Sequence[SideOutput]
) -> tuple[MainOutput, ...]:
    """The main outputs: those given, and without a sink that of each step of which only a side output is written."""
    frames = [(graph.nodes_in(frame)[1], frame, _told(sinks, frame, graph)) for frame, sinks in given]
    for output in side:
        if not any(output.step in steps for steps, _, _ in frames):
            frames.append((graph.nodes_in(output.main)[1], output.main, ()))
    names = [f"{steps[-1]}.{MAIN}" if steps and len(frames) > 1 else MAIN for steps, _, _ in frames]
    numbered = [
        f"{name}.{earlier}" if (earlier := names[:number].count(name)) else name for number, name in enumerate(names)
    ]
    return tuple(
        MainOutput(name, frame, sinks, is_changelog(frame, graph))
        for name, (_, frame, sinks) in zip(numbered, frames, strict=True)
    )


def _told(sinks: Iterable[AnySink], frame: DataFrame, graph: Graph) -> tuple[AnySink, ...]:
    """Sinks that know which rows of their output replace others."""
    versions = versions_of(frame, graph)
    return tuple(sink.of_results(versions) if isinstance(sink, DriverSink) else sink for sink in sinks)


def _sinks(flow: str, given: list[Any]) -> tuple[AnySink, ...]:
    """Headrace's sinks as they are, a user's own class with the defaults for what it does not declare."""
    if not given:
        raise DefinitionError("SINK_MISSING", f"flow {flow!r}: an output has no sink. Add one, as hr.to_console().")
    for sink in given:
        if not isinstance(sink, DriverSink | TaskSink | Sink):
            raise DefinitionError(
                "NOT_A_SINK",
                f"flow {flow!r}: {sink!r} is not a sink. Use hr.to_files(...), hr.to_kafka(...) or another of "
                "hr.to_..., or a class with guarantee and write.",
            )
    return tuple(sink if isinstance(sink, DriverSink | TaskSink) else UserSink(sink) for sink in given)


def _check(graph: Graph, node: FlowNode) -> None:
    for output, _ in node.side_sinks:
        if output.name not in graph.steps[output.step].side_outputs:
            raise DefinitionError(
                "OUTPUT_NOT_KEPT",
                f"flow {node.name!r} writes output {output.name!r} of step {output.step!r}, which drops late rows. "
                "Choose .late(hr.side_output()).",
            )


def _check_operations(graph: Graph, node: FlowNode) -> None:
    """Refuse what the author's own PySpark cannot do with a stream, also in the functions of side outputs."""
    reader = f"flow {node.name!r}"
    for main in node.mains:
        UnsupportedOperations(reader, graph.is_node).check(main.frame)
    for side, _ in node.side_sinks:
        if side.function is not None:
            schema = graph.steps[side.step].side_outputs[side.name]
            rows = side_frame(side.main.sparkSession, LocalStorage(graph.checkpoint), [], schema)
            UnsupportedOperations(reader, Plan.of(rows).is_copy).check(side.function(rows))


def _check_read_once(graph: Graph, node: FlowNode) -> None:
    """A source is read once in a batch, so its rows have their time in all outputs or in none."""
    read = {(name, id(origin)) for main in node.mains for name, origin in sources_read(graph, main.frame)}
    twice = [name for name, count in Counter(name for name, _ in read).items() if count > 1]
    if twice:
        raise DefinitionError(
            "SOURCE_READ_TWICE",
            f"flow {node.name!r} reads source {twice[0]!r} with its event time and without it. Use the frame with the "
            "event time everywhere.",
        )


def sources_read(graph: Graph, frame: DataFrame) -> Iterator[tuple[str, Origin]]:
    """The sources that a frame's plan reads, each with its origin: with event time it is another than without."""
    functions = [node.function for node in Plan.of(frame).nodes]
    origins = [graph.functions[each][1] for each in functions if each in graph.functions]
    origins += [part.origin for step in graph.nodes_in(frame)[1] for part in graph.steps[step].packed]
    for origin in origins:
        if origin.label and len(origin.nodes) == 1:
            yield from ((node.name, origin) for node in origin.nodes if node.kind == "source")


def _check_changes(graph: Graph, node: FlowNode) -> None:
    """A table takes changes only if it has a key, and from a step that knows the last change of each key."""
    for main, sink in [(each, sink) for each in node.mains if each.changelog for sink in each.sinks]:
        sources, steps = graph.nodes_in(main.frame)
        retracting = [step for step in steps if graph.steps[step].step.retracts]
        changing = [source for source in sources if graph.sources[source].changes]
        followed = [] if graph.stateful(steps) else changing
        if followed and sink.changelog_mode == "upsert":
            raise DefinitionError(
                "CHANGELOG_NOT_MATERIALIZED",
                f"flow {node.name!r}: {sink!r} keeps a table, but changes of {followed[-1]!r} may come twice, and "
                "without values that stayed the same, which would become null. Put hr.materialize(...) before it, or "
                "write to a log as hr.to_kafka(...) or hr.to_files(...).",
            )
        if retracting and sink.changelog_mode == "append":
            raise DefinitionError(
                "SINK_CANNOT_DELETE",
                f"flow {node.name!r}: step {retracting[-1]!r} may retract results, but {sink!r} only adds rows, so "
                "its table would hold both. Give it upsert_on=[...] with the key and the window (of sessions "
                "session_id), or write to a log as hr.to_kafka(...) or hr.to_files(...), where each row says its "
                "change.",
            )
