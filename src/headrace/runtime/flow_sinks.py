"""The sinks of a flow, and what can be wrong with them before the first batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.changelog import CHANGE
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.delivery import flat_paths
from headrace.connectors.base.sink import AnySink, TaskSink, Unreachable
from headrace.errors import DefinitionError, HeadraceError
from headrace.graph import FlowNode, Graph, SideOutput
from headrace.schemas import polars_schema
from headrace.wheel.side_rows import side_frame

Check = Callable[[], None]
"""Fails when something is wrong."""


@dataclass(frozen=True, slots=True)
class SinkedOutput:
    """One output of a flow and its sinks."""

    name: str
    sinks: tuple[AnySink, ...]
    given: SideOutput | DataFrame
    changelog: bool = False

    def stored_in(self, sink: AnySink, frame: DataFrame) -> DataFrame:
        """The columns that a sink stores of a frame: one that applies changes by key does not store what they are."""
        return frame.drop(CHANGE) if self.changelog and sink.changelog_mode == "upsert" else frame


@dataclass(frozen=True, slots=True)
class FlowSinks:
    """The outputs of a flow with their sinks."""

    graph: Graph
    node: FlowNode
    spark: SparkSession
    folder: Path

    @property
    def all(self) -> list[SinkedOutput]:
        """The outputs that have sinks. A side output that is written again has a number in its name."""
        mains = [main for main in self.node.mains if main.sinks]
        found = [SinkedOutput(main.name, main.sinks, main.frame, main.changelog) for main in mains]
        seen: Counter[str] = Counter()
        for side, sinks in self.node.side_sinks:
            name = f"{side.step}.{side.name}"
            found.append(SinkedOutput(f"{name}.{seen[name]}" if seen[name] else name, sinks, side))
            seen[name] += 1
        return found

    def stored(self) -> list[tuple[str, AnySink, DataFrame]]:
        """Each output and sink, with the columns that it stores."""
        return [
            (output.name, sink, output.stored_in(sink, frame))
            for output, frame in ((each, self._frame_of(each)) for each in self.all)
            for sink in output.sinks
        ]

    def checks(self, *, connect: bool = False) -> Iterator[Check]:
        """A check of each sink, which asks its server only to ``connect``, and changes nothing there."""
        yield self._check_targets
        for _, sink, frame in self.stored():
            yield partial(self._check_sink, sink, frame, connect)

    def side_frame(self, side: SideOutput, files: Sequence[str]) -> DataFrame:
        """The rows of a side output in these files, with the user's transformation."""
        schema = self.graph.steps[side.step].side_outputs[side.name]
        frame = side_frame(self.spark, LocalStorage(self.folder), list(files), schema)
        return frame if side.function is None else side.function(frame)

    @contextmanager
    def reachable(self, sink: AnySink) -> Iterator[None]:
        """Name the sink whose server does not answer."""
        try:
            yield
        except Unreachable as problem:
            raise HeadraceError(
                "SINK_UNREACHABLE",
                f"{sink.place} of flow {self.node.name!r} does not answer: {problem}. Start the server or correct the "
                "address.",
            ) from None

    def _frame_of(self, output: SinkedOutput) -> DataFrame:
        return self.side_frame(output.given, []) if isinstance(output.given, SideOutput) else output.given

    def _check_targets(self) -> None:
        for output in self.all:
            targets = [sink.target for sink in output.sinks if isinstance(sink, TaskSink)]
            twice = [target for target in targets if targets.count(target) > 1]
            if twice:
                raise DefinitionError(
                    "SINK_TWICE",
                    f"flow {self.node.name!r} writes its output {output.name!r} twice to {twice[0]}, where the second "
                    "sink would find the marks of the first. Leave one out.",
                )

    def _check_sink(self, sink: AnySink, frame: DataFrame, connect: bool) -> None:
        if not isinstance(sink, TaskSink):
            sink.check_columns(frame.schema)
            if connect:
                sink.check_target(frame)
            return
        existing = flat_paths(frame.schema)
        unknown = [column for column in sink.partition_by if column not in existing]
        if unknown:
            raise DefinitionError(
                "COLUMN_UNKNOWN",
                f"{sink.place} of flow {self.node.name!r} needs column {unknown[0]!r}, which the rows do not have. "
                f"Existing columns: {', '.join(existing)}. Correct {sink!r}, or select the column before hr.write.",
            )
        columns = polars_schema(frame.schema)
        sink.check_columns(columns)
        if connect:
            with self.reachable(sink):
                sink.check_target(columns)
