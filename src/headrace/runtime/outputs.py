"""The outputs of a flow: main, side outputs and dead letters, written to their sinks batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from headrace.checkpoint.lease import Lease
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.delivery import DeliveryContext, deliver
from headrace.connectors.base.sink import (
    AnySink,
    BatchIdentity,
    Mark,
    TaskSink,
    WriterBatch,
    Written,
    already_written,
)
from headrace.connectors.files.sink import FileSink
from headrace.errors import HeadraceError
from headrace.event_time.record import COPIES, BatchLog, BatchRecord, MarkedBatch
from headrace.graph import MainOutput, SideOutput
from headrace.json_codec import decode
from headrace.plan.identity import FlowId
from headrace.reports import BatchReports
from headrace.runtime.batch_plan import FlowPlan, compute
from headrace.runtime.flow_sinks import FlowSinks, SinkedOutput
from headrace.schemas import polars_schema
from headrace.wheel.side_rows import DEAD_LETTER_SCHEMA, DEAD_LETTERS, side_frame

EPOCHS_OF_A_GENERATION = 2**33 * COPIES
"""More than the drivers of one log will ever have."""


@dataclass(frozen=True, slots=True)
class FlowOutputs(FlowSinks):
    """The outputs of a flow with their sinks, for the driver that writes them."""

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
        for check in self.checks():
            check()
        writers = self.check_marks()
        for output, sink, frame in self.stored():
            with self.reachable(sink):
                if isinstance(sink, TaskSink):
                    sink.prepare(polars_schema(frame.schema), writers[output, id(sink)], self.epoch)
                else:
                    sink.check_target(frame)
        self.check_marks()

    def check_marks(self) -> dict[tuple[str, int], list[str]]:
        """Fail where a sink holds what the log does not know; the writers of each sink. Nothing is changed."""
        return {(output, id(sink)): self._check_marks(output, sink) for output, sink in self._sinks()}

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
        with self.reachable(sink):
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
