"""``hr.write``: one flow, one Spark query, one checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.changelog import CHANGE
from headrace.connectors.base.sink import Sink, TaskSink
from headrace.errors import DefinitionError
from headrace.graph import FlowNode, SideOutput, active_graph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnySink = Sink | TaskSink


def write(name: str, *outputs: Any) -> None:
    """Write a frame to a sink, or several outputs of one step, each to one or more sinks, as one flow.

    ``hr.write("spend", frame, sink)``, or
    ``hr.write("spend", (windows.main, sink, another), (windows.late, sink))``.
    """
    graph = active_graph()
    pairs = outputs if all(isinstance(output, tuple) for output in outputs) else (outputs,)
    if not outputs:
        raise DefinitionError(
            "FLOW_EMPTY",
            f"flow {name!r} writes nothing. Give it a frame and a sink, as in hr.write(name, frame, sink).",
        )
    main: list[tuple[DataFrame, tuple[AnySink, ...]]] = []
    side: list[tuple[SideOutput, tuple[AnySink, ...]]] = []
    for output, *sinks in pairs:
        for sink in sinks:
            if not isinstance(sink, Sink | TaskSink):
                raise DefinitionError(
                    "NOT_A_SINK",
                    f"flow {name!r}: {sink!r} is not a sink. Use hr.to_files(...), hr.to_kafka(...) or another of "
                    "hr.to_..., or a class with guarantee and write.",
                )
        if not sinks:
            raise DefinitionError("SINK_MISSING", f"flow {name!r}: an output has no sink. Add one, as hr.to_console().")
        if isinstance(output, SideOutput):
            side.append((output, tuple(sinks)))
        else:
            main.append((output, tuple(sinks)))
    frame = main[0][0] if main else side[0][0].main
    if len(main) > 1:
        raise DefinitionError(
            "FLOW_WITH_TWO_FRAMES",
            f"flow {name!r} writes {len(main)} frames, and each would run its steps again. Write one frame to several "
            "sinks, as in (frame, sink, another), and the others in flows of their own.",
        )
    sources, steps = graph.nodes_in(frame)
    _check(name, frame, sources, steps, side)
    if main:
        _check_changes(name, frame, sources, steps, main[0][1])
    graph.add_flow(FlowNode(name, frame, main[0][1] if main else (), tuple(side), sources, steps))


def _check(
    name: str,
    frame: DataFrame,
    sources: tuple[str, ...],
    steps: tuple[str, ...],
    side: list[tuple[SideOutput, tuple[AnySink, ...]]],
) -> None:
    if not frame.isStreaming or not sources:
        raise DefinitionError(
            "NOT_A_STREAM",
            f"flow {name!r}: the frame does not come from a source of Headrace. Read it with hr.read_files, "
            "hr.read_kafka or another of hr.read_..., or hr.generate.",
        )
    for output, _ in side:
        if output.step not in steps:
            raise DefinitionError(
                "OUTPUT_OF_ANOTHER_FLOW",
                f"flow {name!r} writes output {output.name!r} of step {output.step!r}, but not its main output. "
                "Write all outputs of a step in one hr.write(...).",
            )
        if output.name not in _side_outputs(output.step):
            raise DefinitionError(
                "OUTPUT_NOT_KEPT",
                f"flow {name!r} writes output {output.name!r} of step {output.step!r}, which drops late rows. "
                "Choose .late(hr.side_output()).",
            )


def _check_changes(
    name: str, frame: DataFrame, sources: tuple[str, ...], steps: tuple[str, ...], sinks: tuple[AnySink, ...]
) -> None:
    """A table takes changes only if it has a key, and from a step that knows the last change of each key.

    Where a sink says nothing of ``takes_changes`` it is a log, in which each row says its change.
    """
    graph = active_graph()
    taking_back = [step for step in steps if getattr(graph.steps[step].step, "takes_back", False)]
    followed = [] if graph.stateful(steps) else [source for source in sources if graph.sources[source].changes]
    for sink in sinks:
        takes_changes = getattr(sink, "takes_changes", None)
        if CHANGE not in frame.columns or takes_changes is None:
            continue
        if followed and takes_changes:
            raise DefinitionError(
                "CHANGELOG_NOT_MATERIALIZED",
                f"flow {name!r}: {sink!r} keeps a table, but changes of {followed[-1]!r} may come twice, and without "
                "values that stayed the same, which would become null. Put hr.materialize(...) before it, or write to "
                "a log as hr.to_kafka(...) or hr.to_files(...).",
            )
        if taking_back and not takes_changes:
            raise DefinitionError(
                "SINK_CANNOT_DELETE",
                f"flow {name!r}: step {taking_back[-1]!r} may take results back, but {sink!r} only adds rows, so its "
                "table would hold both. Give it upsert_on=[...] with the key and the window (of sessions session_id), "
                "or write to a log as hr.to_kafka(...) or hr.to_files(...), where each row says its change.",
            )


def _side_outputs(step: str) -> Any:
    return active_graph().steps[step].side_outputs
