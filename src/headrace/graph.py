"""The graph of a pipeline: its sources, steps and flows, in the order of their definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.checkpoint.storage import Storage
from headrace.errors import DefinitionError, check_name
from headrace.nodes import NodeId, StepDefinition
from headrace.plans import Plan
from headrace.reports import ReportAccumulator
from headrace.schemas import from_arrow


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of a frame come from, so that a step after it can read there, without a hop in between."""

    stream: DataFrame
    """The rows of the frame, or the files, positions or blobs of a node."""
    read: Any
    """How a task makes rows of the stream."""
    nodes: frozenset[NodeId]
    """The sources and steps whose rows come from here."""
    label: str = ""
    """The name under which plans show the node when it is read in the same function."""
    timed: Callable[[Any], DataFrame | None] = lambda strategy: None
    """The frame of a source with its time declared; None for any other frame."""


class SourceFeed(Protocol):
    """Brings rows to where a source reads them, on the driver, while the pipeline runs."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


OWN_FOLDERS = frozenset({"waiting", "lease", "landing", "generators"})
"""Folders of a checkpoint that are not those of flows."""


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A source in the graph; ``fingerprint`` must stay the same for its positions to stay valid."""

    name: str
    fingerprint: Mapping[str, object]
    enumerator: Callable[[Storage], Any]
    """Makes what finds new rows for a flow, which keeps what it has to remember in that flow's storage."""
    placeholder: DataFrame | None = None
    """The frame that stands for the rows of each batch; None where tasks learn from the batch what to read."""
    divided: bool = False
    """Whether the source has partitions of its own, each with a watermark."""
    counts_rows: bool = False
    """Whether it knows how many rows wait, so that a batch may take a limited number."""
    prepare: Callable[[], None] | None = None
    """Finds, before the first batch, what would stop the reading."""
    feed: SourceFeed | None = None
    """For systems that cannot be asked for old rows."""
    time: Any = None
    """The declared time strategy, or None for a source whose flows have no event time."""
    changes: bool = False
    """Whether its rows are a changelog, in which a row may retract an earlier one."""
    endless: bool = False
    """Whether it never ends, so that there is nothing to drain."""
    queried: bool = False
    """Whether a query of Spark reads it, so that its partitions and how many rows wait are not known."""


@dataclass(frozen=True, slots=True)
class PackedOrigin:
    """The rows of an origin, packed for the inputs of a step that read it."""

    origin: Origin
    inputs: tuple[Any, ...]
    frame: DataFrame


@dataclass(frozen=True, slots=True)
class PassedOrigin:
    """The rows of an origin that pass through a step without state, and the frame of those that it hands on."""

    origin: Origin
    operator: Any
    frame: DataFrame


@dataclass(frozen=True, slots=True)
class StepNode:
    """A step in the graph with the nodes it reads, and what ``explain`` says about it."""

    step: StepDefinition
    inputs: tuple[NodeId, ...]
    columns: tuple[str, ...]
    side_outputs: Mapping[str, Any] = field(default_factory=dict)
    """Schema of each side output by its name."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the state with their types."""
    state_identity: tuple[str, ...] = ()
    """The columns that identify a row of the state."""
    packed: tuple[PackedOrigin, ...] = ()
    """Of a step with state: what is packed for it."""
    passed: PassedOrigin | None = None
    """Of a step without state: what passes through it."""


@dataclass(frozen=True, slots=True)
class SideOutput:
    """Rows that leave a step beside its main output; ``hr.write`` takes it, like a frame."""

    step: str
    name: str
    main: DataFrame
    function: Callable[[DataFrame], DataFrame] | None = None

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> SideOutput:
        """The same output, shaped by a function of one DataFrame before it is written."""
        earlier = self.function
        return replace(self, function=function if earlier is None else lambda frame: function(earlier(frame)))


@dataclass(frozen=True, slots=True)
class MainOutput:
    """A frame that a flow writes, under the name that sinks and counts have for it."""

    name: str
    frame: DataFrame
    sinks: tuple[Any, ...]
    changelog: bool
    """Whether its column ``change`` is that of a changelog."""


@dataclass(frozen=True, slots=True)
class FlowNode:
    """One ``hr.write``: one loop with one log."""

    name: str
    mains: tuple[MainOutput, ...]
    side_sinks: tuple[tuple[SideOutput, tuple[Any, ...]], ...]
    sources: tuple[str, ...]
    steps: tuple[str, ...]
    """Names of the sources and steps in the flow's plans, in the order of their definition."""
    line: str | None = None
    """The line of the user's code that declares it."""

    @property
    def sinks(self) -> list[tuple[str, Any]]:
        """Every sink with the name of its output."""
        main = [(output.name, sink) for output in self.mains for sink in output.sinks]
        return main + [(f"{side.step}.{side.name}", sink) for side, given in self.side_sinks for sink in given]


@dataclass(slots=True)
class Graph:
    """What a pipeline's function has defined so far."""

    pipeline: str
    checkpoint: Path
    reports: ReportAccumulator
    key_groups: int | None = None
    """Into how many key groups state is divided; None for what a checkpoint has, or the usual number."""
    bounded: Mapping[str, DataFrame] = field(default_factory=dict)
    """Tables that take the place of sources."""
    slots: int = 1
    """How many tasks share the state of a step."""
    first_rows: int | None = None
    """Of a preview: how many rows of each source its only task reads; None for all."""
    sources: dict[str, SourceNode] = field(default_factory=dict)
    steps: dict[str, StepNode] = field(default_factory=dict)
    flows: dict[str, FlowNode] = field(default_factory=dict)
    main_outputs: dict[str, DataFrame] = field(default_factory=dict)
    """The main output of each step with state, by its name."""
    _origins: dict[int, tuple[DataFrame, Origin]] = field(default_factory=dict)
    functions: dict[int, tuple[DataFrame, Origin]] = field(default_factory=dict)
    """The frame that each Python function of ours in a plan gives, by its id there."""

    def register_frame(self, frame: DataFrame, origin: Origin) -> DataFrame:
        """Remember that this very DataFrame comes straight from a source or a step."""
        self._origins[id(frame)] = (frame, origin)
        function = Plan.of(frame).function
        if function is not None:
            self.functions[function] = frame, origin
        return frame

    def nodes_of_function(self, function: int | None) -> frozenset[NodeId] | None:
        """The sources and steps behind the rows of a function in a plan; None for one of the user's own."""
        return self.functions[function][1].nodes if function in self.functions else None

    def frame_of_origin(self, origin: Origin) -> DataFrame | None:
        """The frame of the source or step whose rows come from an origin; None for one of the author's own."""
        return next((frame for frame, known in self.functions.values() if known is origin), None)

    def is_node(self, plan: Plan) -> bool:
        """Whether a node of a plan gives the rows of a source or step."""
        return plan.function in self.functions

    def origin_of(self, frame: DataFrame) -> Origin:
        """Where the rows of a frame come from: a node, if it is that node's very output; otherwise the frame itself."""
        if id(frame) not in self._origins:
            self._origins[id(frame)] = frame, Origin(frame, rows_as_they_are, self.nodes_behind(frame))
        return self._origins[id(frame)][1]

    def add_source(self, node: SourceNode) -> None:
        check_name("source", node.name)
        if node.name in self.sources:
            raise DefinitionError(
                "SOURCE_NAME_REUSED",
                f"two sources are named {node.name!r}, so their positions could be mixed up after a restart. "
                "Give one of them another name with name='...'.",
            )
        self.sources[node.name] = node

    def add_step(self, node: StepNode) -> None:
        name = node.step.name
        if name in self.steps:
            raise DefinitionError(
                "STEP_NAME_REUSED",
                f"two steps are named {name!r}, but a name is the identity of a step's state. Rename one of them.",
            )
        self.steps[name] = node

    def add_flow(self, flow: FlowNode) -> None:
        """Record a flow; a step's state belongs to one flow only."""
        check_name("flow", flow.name)
        if flow.name in OWN_FOLDERS:
            raise DefinitionError(
                "FLOW_NAME_TAKEN",
                f"a flow cannot be named {flow.name!r}: a folder of that name in the checkpoint is Headrace's own. "
                "Choose another name.",
            )
        if flow.name in self.flows:
            raise DefinitionError("FLOW_NAME_REUSED", f"two flows are named {flow.name!r}. Rename one of them.")
        for other in self.flows.values():
            shared = sorted(set(self.stateful(other.steps)) & set(self.stateful(flow.steps)))
            if shared:
                raise DefinitionError(
                    "STEP_IN_TWO_FLOWS",
                    f"step {shared[0]!r} is written by the flows {other.name!r} and {flow.name!r}, which would run it "
                    "twice with two states. Write all its outputs in one hr.write(...).",
                )
        self.flows[flow.name] = flow

    def nodes_in(self, *frames: DataFrame) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the sources and steps behind frames, each in the order of their definition."""
        found = frozenset[NodeId]().union(*map(self.nodes_behind, frames))
        return (
            tuple(name for name in self.sources if NodeId("source", name) in found),
            tuple(name for name in self.steps if NodeId("step", name) in found),
        )

    def origins_behind(self, frame: DataFrame) -> Iterator[Origin]:
        """The origins of the sources and steps that give a frame its rows."""
        plans = [Plan.of(frame)]
        while plans:
            plan = plans.pop()
            if plan.function in self.functions:
                yield self.functions[plan.function][1]
            else:
                plans += plan.children

    def nodes_behind(self, frame: DataFrame) -> frozenset[NodeId]:
        return frozenset[NodeId]().union(*(origin.nodes for origin in self.origins_behind(frame)))

    def gives_changelog(self, nodes: frozenset[NodeId]) -> bool:
        """Whether a function of these nodes gives a changelog: its last step with state decides, else its source."""
        stateful = self.stateful(name for name in self.steps if NodeId("step", name) in nodes)
        if stateful:
            return self.steps[stateful[-1]].step.retracts
        return any(self.sources[node.name].changes for node in nodes if node.kind == "source")

    def sources_behind(self, node: NodeId) -> set[str]:
        """The sources whose rows come to a source or step."""
        if node.kind == "source":
            return {node.name}
        return set().union(*(self.sources_behind(given) for given in self.steps[node.name].inputs))

    def stateful(self, steps: Iterable[str]) -> tuple[str, ...]:
        """Those of some steps that have state, and so time bounds of their own."""
        return tuple(name for name in steps if not self.steps[name].step.stateless)

    def time_node(self, node: NodeId) -> NodeId:
        """The source or stateful step whose event time the rows of a source or step follow."""
        if node.kind == "step" and self.steps[node.name].step.stateless:
            return self.time_node(self.steps[node.name].inputs[0])
        return node


def rows_as_they_are(batches: Iterator[pa.RecordBatch], _task: object) -> Iterator[pl.DataFrame]:
    """How a task reads a frame that Spark computes."""
    return (from_arrow(batch) for batch in batches)


_ACTIVE: ContextVar[Graph | None] = ContextVar("headrace_graph", default=None)


def comes_from_source(frame: DataFrame) -> bool:
    """Whether a frame has rows of a source of the pipeline that is being defined, if one is."""
    graph = _ACTIVE.get()
    return graph is not None and any(graph.nodes_in(frame))


def graph_behind(*frames: DataFrame, reader: str) -> Graph:
    """The active pipeline's graph, for frames with rows of its sources; Spark's own streams and tables are refused."""
    for frame in frames:
        if frame.isStreaming:
            raise DefinitionError(
                "STREAM_NOT_WRAPPED",
                f"{reader} was given a stream that Spark reads by itself, so Headrace knows no position in it. Wrap "
                "it in the pipeline: hr.source(frame, name='payments').",
            )
        if not comes_from_source(frame):
            raise DefinitionError(
                "NOT_A_STREAM",
                f"{reader} was given a table, without rows of a source of the pipeline. For a stream use "
                "hr.read_files(...) or another of hr.read_.... To run a step once over a table use "
                "hr.over(frame, step, time='at'), and Spark's own frame.write.",
            )
    return active_graph()


def active_graph() -> Graph:
    """The graph of the pipeline that is being defined."""
    graph = _ACTIVE.get()
    if graph is None:
        raise DefinitionError(
            "NO_PIPELINE",
            "sources, steps and hr.write(...) belong inside a function decorated with @hr.pipeline. "
            "Move this call there and start it with .run(checkpoint=...).",
        )
    return graph


@contextmanager
def defining(graph: Graph) -> Iterator[Graph]:
    """Make a graph the active one while a pipeline's function runs."""
    token = _ACTIVE.set(graph)
    try:
        yield graph
    finally:
        _ACTIVE.reset(token)
