"""``hr.write``: one flow, which is one loop with one log."""

from __future__ import annotations

from typing import Any

from headrace.changelog import CHANGE
from headrace.connectors.base.sink import AnySink, DriverSink, Sink, TaskSink, UserSink
from headrace.errors import DefinitionError
from headrace.graph import FlowNode, Graph, SideOutput, active_graph
from headrace.stability import stable


@stable
def write(name: str, *outputs: Any) -> None:
    """Write a frame to a sink, or several outputs of one step, each to one or more sinks, as one flow.

    ``hr.write("spend", frame, sink)`` writes one frame to one sink.
    ``hr.write("spend", (windows.main, sink, another), (windows.late, sink))`` writes several outputs. A sink is one of
    ``hr.to_...``, or an object of any class with ``guarantee`` and ``write`` (``hr.Sink``).

    >>> import headrace as hr
    >>> @hr.pipeline
    ... def spend(spark):
    ...     payments = hr.generate(spark, hr.Payments(), name="payments")
    ...     hr.write("spend", payments, hr.to_console())
    >>> spend.name
    'spend'
    """
    graph = active_graph()
    if not outputs:
        raise DefinitionError(
            "FLOW_EMPTY",
            f"flow {name!r} writes nothing. Give it a frame and a sink, as in hr.write(name, frame, sink).",
        )
    pairs = outputs if all(isinstance(output, tuple) for output in outputs) else (outputs,)
    given = [(output, _sinks(name, sinks)) for output, *sinks in pairs]
    main = [(output, sinks) for output, sinks in given if not isinstance(output, SideOutput)]
    side = [(output, sinks) for output, sinks in given if isinstance(output, SideOutput)]
    if len(main) > 1:
        raise DefinitionError(
            "FLOW_WITH_TWO_FRAMES",
            f"flow {name!r} writes {len(main)} frames, and each would run its steps again. Write one frame to several "
            "sinks, as in (frame, sink, another), and the others in flows of their own.",
        )
    frame = main[0][0] if main else side[0][0].main
    sources, steps = graph.nodes_in(frame)
    node = FlowNode(name, frame, main[0][1] if main else (), tuple(side), sources, steps)
    _check(graph, node)
    _check_changes(graph, node)
    graph.add_flow(node)


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
    if not node.sources:
        raise DefinitionError(
            "NOT_A_STREAM",
            f"flow {node.name!r}: the frame does not come from a source of Headrace. Read it with hr.read_files, "
            "hr.read_kafka or another of hr.read_..., or hr.generate.",
        )
    for output, _ in node.side_sinks:
        if output.step not in node.steps:
            raise DefinitionError(
                "OUTPUT_OF_ANOTHER_FLOW",
                f"flow {node.name!r} writes output {output.name!r} of step {output.step!r}, but not its main output. "
                "Write all outputs of a step in one hr.write(...).",
            )
        if output.name not in graph.steps[output.step].side_outputs:
            raise DefinitionError(
                "OUTPUT_NOT_KEPT",
                f"flow {node.name!r} writes output {output.name!r} of step {output.step!r}, which drops late rows. "
                "Choose .late(hr.side_output()).",
            )


def _check_changes(graph: Graph, node: FlowNode) -> None:
    """A table takes changes only if it has a key, and from a step that knows the last change of each key."""
    retracting = [step for step in node.steps if graph.steps[step].step.retracts]
    changing = [source for source in node.sources if graph.sources[source].changes]
    followed = [] if graph.stateful(node.steps) else changing
    for sink in node.main_sinks if CHANGE in node.frame.columns else ():
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
                f"flow {node.name!r}: step {retracting[-1]!r} may take results back, but {sink!r} only adds rows, so "
                "its table would hold both. Give it upsert_on=[...] with the key and the window (of sessions "
                "session_id), or write to a log as hr.to_kafka(...) or hr.to_files(...), where each row says its "
                "change.",
            )
