"""The inline engine: the same gate, pack, state and turn, with segments in memory; only Spark is absent."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from headrace.checkpoint.storage import MemoryStorage
from headrace.checkpoint.sweep import Sweeper
from headrace.connectors.base.decoding import POSITION, Decoded
from headrace.connectors.base.source import Gate
from headrace.event_time.record import BatchLog
from headrace.event_time.time_keeper import TimeKeeper, Topology
from headrace.expressions import parse_row_expression
from headrace.nodes import NodeId
from headrace.observe.account import account_of
from headrace.operators.lookup.answers import forget_answers
from headrace.operators.placement import check_chained
from headrace.operators.step import Step
from headrace.reports import BatchReports, Report, ReportKey
from headrace.runtime.broadcast_tables import BroadcastTables
from headrace.runtime.planner import Planner, Writing
from headrace.schemas import MOMENT
from headrace.state.group_range import KEY_GROUPS
from headrace.state.segment import OpenSegments
from headrace.testing.elements import At, Side
from headrace.testing.engine import SOURCES, TIME, Setting
from headrace.wheel.operator import AnyOperator, Joined
from headrace.wheel.pack import Blob, Input, pack
from headrace.wheel.side_rows import read_rows
from headrace.wheel.stateless import Stateless, pass_rows
from headrace.wheel.task import STATE, Task, TaskState
from headrace.wheel.turn import turn

FLOW = "timeline"
Frames = dict[int, list[pl.DataFrame]]
"""Rows by partition."""
SLOTS = (1, 2, 3, 8)


class NothingToRead:
    """The reader of a gate whose rows are handed to it."""

    def read(self, given: object, task: Task) -> Iterator[Decoded]:
        yield from ()


class InlineEngine:
    """Runs batches in this process; every start divides the state into another number of slots."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._operators = _bound(setting)
        self._stateful = [operator for operator in self._operators if not isinstance(operator, Stateless)]
        setting.declare(name for operator in self._stateful for name in operator.side_schemas)
        self._gates = {side: Gate(SOURCES[side], NothingToRead(), setting.strategy) for side in setting.schemas}
        self._storage = MemoryStorage()
        self._interrupted: Sequence[At] | None = None
        self._random = random.Random(7)
        self._start()

    def _start(self) -> None:
        """What every start of the process begins with: the log, the files, and no open segment."""
        names = [operator.name for operator in self._stateful]
        sources = [SOURCES[side] for side in self._setting.schemas]
        inputs = [tuple(NodeId("source", source) for source in sources), *((NodeId("step", name),) for name in names)]
        topology = Topology(
            dict.fromkeys(sources, self._setting.strategy),
            dict(zip(names, inputs, strict=False)),
            holdbacks={step.name: step.holdback for step in self._setting.steps},
        )
        self._opened = OpenSegments()
        self._tables = BroadcastTables(self._storage, self._setting.steps)
        time = TimeKeeper(topology, lambda: self._setting.clock)
        definitions = {step.name: repr(step) for step in self._setting.steps if step.name in topology.steps}
        writing = Writing(slots=self.next_slots(), definitions=definitions)
        log = BatchLog(self._storage)
        self._epoch = log.take_over()
        self.planner = Planner(time, log, writing=writing, complete=self._tables.complete)
        self._sweeper = Sweeper(self._storage, STATE, epoch=self._epoch)
        self._sweeper.all(self.planner.last.files, done=self.planner.last.batch, now=self._setting.clock)
        self._setting.take_over(time)

    def next_slots(self) -> int:
        return self._random.choice(SLOTS)

    def finish(self) -> bool:
        """Run the batch again that a crash interrupted, if there is one; whether there was."""
        if self._interrupted is None:
            return False
        again, self._interrupted = self._interrupted, None
        self.run(again)
        return True

    def crash(self, rows: Sequence[At]) -> None:
        """Die while a batch of these rows runs (or between batches when there are none), and start again."""
        if rows and self._interrupted is None:
            self.run(rows, commit=False)
            self._interrupted = rows
        self._start()

    def close(self) -> None:
        """Let go of what steps keep in this process."""
        for operator in self._operators:
            if isinstance(operator, Stateless):
                operator.close()

    def run(self, rows: Sequence[At], *, commit: bool = True, drain: bool = False) -> None:
        runs_again = self.planner.runs_again
        record = self.planner.plan(drain=drain)
        forget_answers(self._storage, before=record.batch)
        reports = BatchReports()
        state = TaskState(self._storage, self._opened, KEY_GROUPS, self._epoch, self.planner.time.slots)

        def report(key: ReportKey, said: Report) -> None:
            reports.add(key[2], key[3], said)

        def task(partition: int) -> Task:
            return Task(record, FLOW, partition, report, state, runs_again=runs_again)

        frames = self._arrived(rows, "left", task)
        second = self._arrived(rows, "right", task) if "right" in self._setting.schemas else {}
        for operator in self._operators:
            if isinstance(operator, Stateless):
                if operator.gathered_by:
                    frames = {0: [frame for each in frames.values() for frame in each]}
                frames = {number: list(pass_rows(each, operator, task(number))) for number, each in frames.items()}
            else:
                frames, second = self._step(operator, frames, second, task), {}
        account_of(reports, {}).check(flow=FLOW, batch=record.batch)
        if commit:
            self.planner.conclude(record, reports)
            self._tables.forget(record.tables)
            self._sweeper.batch(self.planner.last.files, done=record.batch, now=record.clock)
            for frame in (frame for each in frames.values() for frame in each):
                self._setting.give("main", frame.rows(named=True))
            for said in (said for _, parts in reports.nodes() for said in parts.values()):
                for output, files in said.side.items():
                    for file, _ in files:
                        self._setting.give(output, read_rows(self._storage, file).rows(named=True))

    def _arrived(self, rows: Sequence[At], side: Side, task: Any) -> Frames:
        nothing = pl.DataFrame(schema=self._setting.schemas[side])
        admitted: Frames = {}
        for number, frame in {0: nothing, **self._setting.frames(rows, side)}.items():
            numbered = frame.with_row_index(POSITION).cast({POSITION: pl.Int64})
            decoded = Decoded(numbered, origin="timeline", arrived=self._setting.clock)
            admitted[number] = list(self._gates[side].admit([decoded], task(number)))
        return admitted

    def _step(self, operator: AnyOperator, frames: Frames, second: Frames, task: Any) -> Frames:
        blobs: defaultdict[int, list[Blob]] = defaultdict(list)
        due = task(0).record.wake.get(operator.name, ())
        for blob in self._packed(operator, frames, second, task):
            if blob.blob or blob.slot in due:
                blobs[blob.slot].append(blob)
        outputs: Frames = {0: []}
        for slot, given in sorted(blobs.items()):
            self._random.shuffle(given)
            outputs[slot] = list(turn(operator, task(slot), slot, given))
        return outputs

    def _packed(self, operator: AnyOperator, frames: Frames, second: Frames, task: Any) -> Iterator[Blob]:
        split = self._setting.split if operator is self._operators[0] else None
        first = [Input(operator)]
        if split is not None and isinstance(operator, Joined):
            schema = _read(self._setting)[0]
            left, right = (parse_row_expression(text).truth(schema) for text in split)
            first = [Input(operator, condition=left), Input(operator, second=True, condition=right)]
        for number, each in frames.items():
            yield from pack(each, first, task(number))
        for number, each in second.items():
            yield from pack(each, [Input(operator, second=True)], task(number))


def _read(setting: Setting) -> list[Any]:
    """Schema and time of the rows of each side, as the gate hands them on."""
    time = TIME if setting.strategy.kind == "event" else setting.strategy.column
    return [part for schema in setting.schemas.values() for part in ({**schema, time: MOMENT}, time)]


def _bound(setting: Setting) -> list[AnyOperator | Stateless]:
    """The operators of a chain, each over the rows of the one before."""
    operators: list[AnyOperator | Stateless] = []
    given = _read(setting) * (1 if setting.split is None else 2)
    earlier: Step | None = None
    for step in setting.steps:
        if earlier is not None and not step.stateless:
            check_chained(step, earlier, given[0])
        step.check_inputs(len(given) // 2)
        operator: AnyOperator | Stateless = step.bind(*given)
        operators.append(operator)
        if isinstance(operator, Stateless):
            given = [operator.output_schema, given[1]]
        else:
            earlier = step
            given = [operator.output_schema, operator.output_time]
    return operators
