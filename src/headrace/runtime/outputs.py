"""The outputs of a flow with their sinks, and what must be true of these before the first batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.changelog import CHANGE
from headrace.checkpoint.lease import Lease
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.delivery import flat_paths
from headrace.connectors.base.sink import (
    AnySink,
    BatchIdentity,
    Mark,
    TaskSink,
    Unreachable,
    WriterBatch,
    already_written,
)
from headrace.connectors.files.sink import FileSink
from headrace.errors import DefinitionError, HeadraceError
from headrace.event_time.record import COPIES, BatchLog, MarkedBatch
from headrace.graph import FlowNode, Graph, SideOutput
from headrace.json_codec import decode
from headrace.plan.identity import FlowId
from headrace.schemas import polars_schema
from headrace.wheel.side_rows import DEAD_LETTERS, side_frame

EPOCHS_OF_A_GENERATION = 2**33 * COPIES
"""More than the drivers of one log will ever have."""


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
class FlowOutputs:
    """The outputs of a flow with their sinks."""

    graph: Graph
    node: FlowNode
    spark: SparkSession
    folder: Path
    lease: Lease
    log: BatchLog

    @property
    def flow_id(self) -> FlowId:
        """As this driver has said when it took over."""
        return decode(FlowId, self.log.identity)

    @property
    def epoch(self) -> int:
        """The driver's epoch as sinks compare it: that of a restored checkpoint is higher than all before."""
        return self.flow_id.generation * EPOCHS_OF_A_GENERATION + self.log.sink_epoch

    @property
    def writers(self) -> dict[str, int]:
        """The number of writers of each task sink from now on."""
        default = int(self.spark.conf.get("spark.sql.shuffle.partitions") or 1)
        return {
            self.key(output.name, sink): sink.writers or default
            for output in self.all
            for sink in output.sinks
            if isinstance(sink, TaskSink)
        }

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

    def key(self, output: str, sink: AnySink) -> str:
        """The sink's name in the batch log; the flow's own folders go with the checkpoint, wherever that lies."""
        return f"{output} > {sink.target}".replace(f"{self.folder}/", "")

    def own(self, *folders: str) -> FileSink:
        """What is kept in the checkpoint, because no other sink was given for it."""
        return FileSink(str(self.folder.joinpath(*folders)), "parquet")

    def prepare(self) -> None:
        """Before the first batch: let every sink check that it can be written, and claim it for this driver.

        What another copy of the checkpoint has written is found before anything is claimed, so that this one does not
        stop the other; and once more after that, when the other can write no more.
        """
        self._check_targets()
        stored = [
            (output.name, sink, output.stored_in(sink, frame))
            for output, frame in ((each, self._frame_of(each)) for each in self.all)
            for sink in output.sinks
        ]
        for _, sink, frame in stored:
            self._check_columns(sink, frame)
        writers = {(output, id(sink)): self._check_marks(output, sink) for output, sink in self._sinks()}
        for output, sink, frame in stored:
            with self._reachable(sink):
                if isinstance(sink, TaskSink):
                    sink.prepare(polars_schema(frame.schema), writers[output, id(sink)], self.epoch)
                else:
                    sink.prepare(frame)
        for output, sink in self._sinks():
            self._check_marks(output, sink)

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

    def _check_marks(self, output: str, sink: AnySink) -> list[str]:
        """Fail where a sink holds what the log does not know. The writers with marks that there are, or will be."""
        writers = []
        for part, mark in self._marked(output, sink):
            already_written(part, mark, place=sink.place)
            writers.append(part.writer)
        return writers

    def _marked(self, output: str, sink: AnySink) -> Iterator[tuple[WriterBatch, Mark | None]]:
        """The writers that this driver has, each with its mark, then those that an earlier one or a copy had more."""
        parts = self._parts(output, sink, range(self.writers.get(self.key(output, sink), 1)))
        yield from zip(parts, self._read_marks(sink, parts), strict=False)
        while isinstance(sink, TaskSink):
            parts = self._parts(output, sink, [parts[-1].number + 1])
            marks = self._read_marks(sink, parts)
            if not any(marks):
                return
            yield parts[0], marks[0]

    def _read_marks(self, sink: AnySink, parts: Sequence[WriterBatch]) -> list[Mark | None]:
        with self._reachable(sink):
            return [*sink.read_marks(parts)]

    def _sinks(self) -> Iterator[tuple[str, AnySink]]:
        """Every output with each of its sinks, and with the flow's own folders, as far as they have marks."""
        yield from ((output.name, sink) for output in self.all for sink in output.sinks)
        sides = ((name, step) for step in self.node.steps for name in self.graph.steps[step].side_outputs)
        own = {self.key("", sink): sink for sink in (self.own(*folders) for folders in ((DEAD_LETTERS,), *sides))}
        for key in self._marks:
            output, arrow, target = key.partition(" > ")
            if f"{arrow}{target}" in own:
                yield output, own[f"{arrow}{target}"]

    @property
    def _marks(self) -> Mapping[str, Mapping[int, MarkedBatch]]:
        outcome = self.log.outcome
        return {} if outcome is None or outcome.generation != self.flow_id.generation else outcome.marks

    def _parts(self, output: str, sink: AnySink, numbers: Iterable[int]) -> list[WriterBatch]:
        """The part that each writer has in the batch that runs again or comes next."""
        record, marks = self.log.record, self._marks.get(self.key(output, sink), {})
        token = "" if record is None else record.token
        identity = replace(self.identity(output, self.log.next_batch, token), last=marks.get(0))
        return [WriterBatch(identity, number, marks.get(number)) for number in numbers]

    def identity(self, output: str, batch: int, token: str) -> BatchIdentity:
        flow = self.flow_id
        return BatchIdentity(self.node.name, flow.generation, batch, output, flow.id, self.epoch, token)

    @contextmanager
    def _reachable(self, sink: AnySink) -> Iterator[None]:
        try:
            yield
        except Unreachable as problem:
            raise HeadraceError(
                "SINK_UNREACHABLE",
                f"{sink.place} of flow {self.node.name!r} does not answer: {problem}. Start the server or correct the "
                "address.",
            ) from None

    def _check_columns(self, sink: AnySink, frame: DataFrame) -> None:
        existing = flat_paths(frame.schema)
        wanted = sink.partition_by if isinstance(sink, TaskSink) else ()
        unknown = [column for column in wanted if column not in existing]
        if unknown:
            raise DefinitionError(
                "COLUMN_UNKNOWN",
                f"{sink.place} of flow {self.node.name!r} needs column {unknown[0]!r}, which the rows do not have. "
                f"Existing columns: {', '.join(existing)}. Correct {sink!r}, or select the column before hr.write.",
            )

    def side_frame(self, side: SideOutput, files: Sequence[str]) -> DataFrame:
        """The rows of a side output in these files, with the user's transformation."""
        schema = self.graph.steps[side.step].side_outputs[side.name]
        frame = side_frame(self.spark, LocalStorage(self.folder), list(files), schema)
        return frame if side.function is None else side.function(frame)
