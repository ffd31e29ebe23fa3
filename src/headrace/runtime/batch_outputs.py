"""Writing a batch: its main outputs, then its side rows and dead letters, each to its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.delivery import DeliveryContext, deliver
from headrace.connectors.base.sink import AnySink, TaskSink, Written
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord, MarkedBatch
from headrace.graph import MainOutput, SideOutput
from headrace.reports import BatchReports
from headrace.runtime.batch_plan import FlowPlan, compute
from headrace.runtime.flow_sinks import SinkedOutput
from headrace.runtime.outputs import FlowOutputs
from headrace.wheel.side_rows import DEAD_LETTER_SCHEMA, DEAD_LETTERS, side_frame


@dataclass(slots=True)
class BatchOutputs:
    """Writes one batch to its sinks and records what became of the rows."""

    flow: FlowOutputs
    record: BatchRecord
    expected: Mapping[str, Mapping[int, MarkedBatch]]
    """The last batch that each writer of each sink has marked."""
    plan: FlowPlan
    written: dict[str, Written] = field(default_factory=dict)
    """What each sink has written, by output."""
    marked: dict[str, frozenset[int]] = field(default_factory=dict)
    """The writers of each sink that have marked this batch."""

    def write_main(self, frames: Mapping[str, DataFrame]) -> None:
        """Run the batch's plans, each once, and write the main outputs."""
        for main in self.flow.node.mains:
            if main.sinks:
                self._write_all(main, frames[main.name])
            else:
                frames[main.name].write.format("noop").mode("overwrite").save()

    def write_side(self, reports: BatchReports) -> None:
        """Write exactly the side rows and dead letters whose files the tasks reported."""
        flow = self.flow
        for name, main in list(self.written.items()):
            self._write_letters(f"{name}.{DEAD_LETTERS}", main.letters)
        for source in flow.node.sources:
            self._write_letters(f"{source}.{DEAD_LETTERS}", reports.side_files(DEAD_LETTERS, source=source))
        sinked = [(output, output.given) for output in flow.all if isinstance(output.given, SideOutput)]
        for step in flow.node.steps:
            self._write_letters(f"{step}.{DEAD_LETTERS}", reports.side_files(DEAD_LETTERS, step=step))
            for name in flow.graph.steps[step].side_outputs:
                chosen = [(output, side) for output, side in sinked if (side.step, side.name) == (step, name)]
                if files := reports.side_files(name, step=step):
                    for output, side in chosen or [self._unsinked(step, name)]:
                        frame = self.plan.at_clock(flow.side_frame(side, list(files)), self.record)
                        self._write_rows(output, frame, files, counted=side.function is None)

    def _unsinked(self, step: str, name: str) -> tuple[SinkedOutput, SideOutput]:
        """A side output without sinks of its own, which is kept in the checkpoint's folder."""
        sink = self.flow.own(name, step)
        side = SideOutput(step, name, self.flow.node.mains[0].frame)
        return SinkedOutput(f"{step}.{name}", (sink,), side), side

    def _write_letters(self, name: str, files: Mapping[str, int]) -> None:
        if files:
            sink = self.flow.own(DEAD_LETTERS)
            frame = side_frame(self.flow.spark, LocalStorage(self.flow.folder), list(files), DEAD_LETTER_SCHEMA)
            self._write_rows(SinkedOutput(name, (sink,), frame), frame, files, counted=True)

    def _write_rows(self, output: SinkedOutput, frame: DataFrame, files: Mapping[str, int], *, counted: bool) -> None:
        """Write side rows; ``counted`` when the sinks must get as many rows as the files have."""
        expected = sum(files.values())
        for name in self._write_all(output, frame):
            if counted and self.written[name].out != expected:
                raise HeadraceError(
                    "SIDE_ROWS_LOST",
                    f"flow {self.flow.node.name!r}, batch {self.record.batch}: tasks kept {expected} rows for {name}, "
                    f"the sink got {self.written[name].out}. The batch is not done.",
                )
            self._write_letters(f"{name}.{DEAD_LETTERS}", self.written[name].letters)

    def _write_all(self, output: MainOutput | SinkedOutput, frame: DataFrame) -> list[str]:
        """Write to every sink, running the plan once: several sinks read the persisted rows."""
        if len(output.sinks) == 1:
            self.written[output.name] = self._write(output, output.sinks[0], frame)
            return [output.name]
        kept = frame.persist()
        names = [f"{output.name}#{number}" for number in range(1, len(output.sinks) + 1)]
        try:
            compute(kept)
            for name, sink in zip(names, output.sinks, strict=True):
                self.written[name] = self._write(output, sink, kept)
        finally:
            kept.unpersist()
        return names

    def _write(self, output: MainOutput | SinkedOutput, sink: AnySink, frame: DataFrame) -> Written:
        flow, record = self.flow, self.record
        key = flow.key(output.name, sink)
        marks = self.expected.get(key, {})
        batch = replace(flow.identity(output.name, record.batch, record.token), changelog=output.changelog)
        if isinstance(sink, TaskSink):
            writers = record.writers.get(key) or flow.writers[key]
            context = DeliveryContext(writers, marks, record.clock, LocalStorage(flow.folder), flow.lease)
            written = deliver(frame, sink, batch, context)
            self.marked[key] = written.marked
        else:
            flow.lease.check()
            written = sink.write(frame, replace(batch, last=marks.get(0)))
            # The driver is one writer, and leaves no mark where there is no row.
            self.marked[key] = frozenset({0} if written.rows or written.already_marked else ())
        return written
