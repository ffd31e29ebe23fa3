"""What a batch's tasks made, on its way to the sinks of its flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.connectors.base.delivery import DeliveryContext, deliver, flat_paths
from headrace.connectors.base.sink import AnySink, BatchIdentity, TaskSink, Unreachable, Written, writer_name
from headrace.connectors.files.sink import FileSink
from headrace.errors import DefinitionError, HeadraceError
from headrace.event_time.record import BatchRecord
from headrace.graph import FlowNode, Graph
from headrace.plan.identity import Birth
from headrace.reports import BatchReports
from headrace.runtime.checkpoint import Lease
from headrace.schemas import polars_schema
from headrace.wheel.side_rows import DEAD_LETTER_SCHEMA, DEAD_LETTERS, side_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAIN = "main"
EPOCHS_OF_A_GENERATION = 1_000_000
"""More drivers than one checkpoint will ever have."""
Shape = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True, slots=True)
class FlowOutputs:
    """The outputs of a flow with their sinks."""

    graph: Graph
    node: FlowNode
    spark: SparkSession
    folder: Path
    birth: Birth
    lease: Lease

    @property
    def epoch(self) -> int:
        """The lease's epoch as sinks compare it: a restored checkpoint has a lease of its own, which begins at 1."""
        return self.birth.generation * EPOCHS_OF_A_GENERATION + self.lease.epoch

    @property
    def writers(self) -> dict[str, int]:
        """How many writers each sink that tasks write to has from now on."""
        usual = int(self.spark.conf.get("spark.sql.shuffle.partitions") or 1)
        return {
            sink_key(output, sink): sink.writers or usual
            for output, sinks, _ in self._sinks()
            for sink in sinks
            if isinstance(sink, TaskSink)
        }

    def prepare(self) -> None:
        """Let every sink find what is wrong, and claim it for this driver, before the first batch."""
        for output, sinks, frame in self._sinks():
            targets = [sink.target for sink in sinks if isinstance(sink, TaskSink)]
            twice = [target for target in targets if targets.count(target) > 1]
            if twice:
                raise DefinitionError(
                    "SINK_TWICE",
                    f"flow {self.node.name!r} writes its output {output!r} twice to {twice[0]}, where the second sink "
                    "would find the marks of the first. Leave one out.",
                )
            for sink in sinks:
                if isinstance(sink, TaskSink):
                    self._prepare(sink, output, frame())
                else:
                    sink.prepare(frame())

    def _prepare(self, sink: TaskSink, output: str, frame: DataFrame) -> None:
        columns = polars_schema(frame.schema)
        unknown = [column for column in sink.partition_by if column not in flat_paths(frame.schema)]
        if unknown:
            raise DefinitionError(
                "COLUMN_UNKNOWN",
                f"{sink.place} of flow {self.node.name!r} needs column {unknown[0]!r}, but the rows have "
                f"{', '.join(columns)}.",
            )
        count = self.writers[sink_key(output, sink)]
        writers = [writer_name(self.birth.id, output, number) for number in range(count)]
        try:
            sink.prepare(columns, writers, self.epoch)
        except Unreachable as problem:
            raise HeadraceError(
                "SINK_UNREACHABLE",
                f"{sink.place} of flow {self.node.name!r} does not answer: {problem}. Start the server or correct the "
                "address.",
            ) from None

    def _sinks(self) -> list[tuple[str, tuple[AnySink, ...], Callable[[], DataFrame]]]:
        """Every output with its sinks, and how to get a frame with its columns."""
        found: list[tuple[str, tuple[AnySink, ...], Callable[[], DataFrame]]] = []
        if self.node.main_sinks:
            found.append((MAIN, self.node.main_sinks, lambda: self.node.frame))
        for number, (side, sinks) in enumerate(self.node.side_sinks):
            schema = self.graph.steps[side.step].side_outputs[side.name]

            def shaped(schema: Any = schema, function: Shape | None = side.function) -> DataFrame:
                frame = side_frame(self.spark, [], schema)
                return frame if function is None else function(frame)

            found.append((self.side_name(number), sinks, shaped))
        return found

    def side_name(self, number: int) -> str:
        """The name of a side output; the second time that it is written it has a number."""
        side, _ = self.node.side_sinks[number]
        same = [
            other for other, _ in self.node.side_sinks[:number] if (other.step, other.name) == (side.step, side.name)
        ]
        return f"{side.step}.{side.name}" if not same else f"{side.step}.{side.name}.{len(same)}"

    def of(self, record: BatchRecord, marks: Mapping[str, Mapping[int, int]]) -> BatchOutputs:
        """The outputs of one batch, ready to be written."""
        return BatchOutputs(self, record, marks)


@dataclass(slots=True)
class BatchOutputs:
    """Writes one batch and remembers what became of its rows."""

    flow: FlowOutputs
    record: BatchRecord
    expected: Mapping[str, Mapping[int, int]]
    """The last batch that each writer of each sink marked."""
    written: dict[str, Written] = field(default_factory=dict)
    """What each sink says of what it was given, by output."""
    marks: dict[str, Mapping[int, int]] = field(default_factory=dict)
    """The writers of each sink that have marked this batch."""

    def write_main(self, frame: DataFrame) -> None:
        """Run the batch's plan once, into the sinks of its main output."""
        if self.flow.node.main_sinks:
            self._write_all(MAIN, self.flow.node.main_sinks, frame)
        else:
            frame.write.format("noop").mode("overwrite").save()

    def write_side(self, reports: BatchReports) -> None:
        """Hand exactly the files that the tasks named to their sinks."""
        flow = self.flow
        for output, main in list(self.written.items()):
            self._write_letters(f"{output}.{DEAD_LETTERS}", main.letters)
        for source in flow.node.sources:
            self._write_letters(f"{source}.{DEAD_LETTERS}", reports.side_files(DEAD_LETTERS, source=source))
        for step in flow.node.steps:
            self._write_letters(f"{step}.{DEAD_LETTERS}", reports.side_files(DEAD_LETTERS, step=step))
            for name, schema in flow.graph.steps[step].side_outputs.items():
                files = reports.side_files(name, step=step)
                chosen = [
                    (flow.side_name(number), side.function, sinks)
                    for number, (side, sinks) in enumerate(flow.node.side_sinks)
                    if (side.step, side.name) == (step, name)
                ]
                kept: tuple[AnySink, ...] = (FileSink(str(flow.folder / name / step), "parquet"),)
                for output, function, sinks in chosen or [(f"{step}.{name}", None, kept)]:
                    self._write_rows(output, sinks, files, schema, function)

    def _write_letters(self, output: str, files: Mapping[str, int]) -> None:
        sink = FileSink(str(self.flow.folder / DEAD_LETTERS), "parquet")
        self._write_rows(output, (sink,), files, DEAD_LETTER_SCHEMA, None)

    def _write_rows(
        self,
        output: str,
        sinks: Sequence[AnySink],
        files: Mapping[str, int],
        schema: Mapping[str, pl.DataType],
        function: Shape | None,
    ) -> None:
        if not files:
            return
        frame = side_frame(self.flow.spark, list(files), schema)
        names = self._write_all(output, sinks, frame if function is None else function(frame))
        expected = sum(files.values())
        for name in names:
            if function is None and self.written[name].out != expected:
                raise HeadraceError(
                    "SIDE_ROWS_LOST",
                    f"flow {self.flow.node.name!r}, batch {self.record.batch}: tasks kept {expected} rows for {name}, "
                    f"the sink got {self.written[name].out}. Spark has not committed this batch.",
                )
            self._write_letters(f"{name}.{DEAD_LETTERS}", self.written[name].letters)

    def _write_all(self, output: str, sinks: Sequence[AnySink], frame: DataFrame) -> list[str]:
        """Write to every sink, running the plan once: one sink is one action, several read what was kept."""
        if len(sinks) == 1:
            self.written[output] = self._write(output, sinks[0], frame)
            return [output]
        kept = frame.persist()
        names = [f"{output}#{number}" for number in range(1, len(sinks) + 1)]
        try:
            for name, sink in zip(names, sinks, strict=True):
                self.written[name] = self._write(output, sink, kept)
        finally:
            kept.unpersist()
        return names

    def _write(self, output: str, sink: AnySink, frame: DataFrame) -> Written:
        flow, record = self.flow, self.record
        batch = BatchIdentity(flow.node.name, record.generation, record.batch, output, flow.birth.id, flow.epoch)
        if not isinstance(sink, TaskSink):
            flow.lease.check()
            return sink.write(frame, batch)
        key = sink_key(output, sink)
        writers = record.writers.get(key) or flow.writers[key]
        folder, side = str(flow.folder), str(flow.folder / "side")
        context = DeliveryContext(writers, self.expected.get(key, {}), record.clock, folder, side, flow.lease)
        written = deliver(frame, sink, batch, context)
        self.marks[key] = written.marks
        return written


def sink_key(output: str, sink: TaskSink) -> str:
    """What the batch log knows a sink by."""
    return f"{output} > {sink.target}"
