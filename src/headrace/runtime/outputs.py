"""The outputs of a flow with their sinks, and what must be true of these before the first batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.checkpoint.lease import Lease
from headrace.connectors.base.sink import (
    AnySink,
    BatchIdentity,
    Mark,
    TaskSink,
    WriterBatch,
    already_written,
)
from headrace.connectors.files.sink import FileSink
from headrace.event_time.record import COPIES, BatchLog, MarkedBatch
from headrace.json_codec import decode
from headrace.plan.identity import FlowId
from headrace.runtime.flow_sinks import FlowSinks
from headrace.schemas import polars_schema
from headrace.wheel.side_rows import DEAD_LETTERS

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
