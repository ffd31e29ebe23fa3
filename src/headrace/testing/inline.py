"""The inline engine: the same gate, pack, pages, cache and turn over maps in memory; only Spark is absent."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from headrace.connectors.base.decoding import POSITION, Decoded
from headrace.connectors.base.gate import Gate
from headrace.connectors.base.sink import Written
from headrace.event_time.record import MemoryBatchLog
from headrace.event_time.time_keeper import TimeKeeper, Topology
from headrace.expressions import parse_condition
from headrace.nodes import NodeId
from headrace.observe.account import account_of
from headrace.operators.placement import check_chained
from headrace.operators.step import Step
from headrace.reports import BatchReports, Report, ReportKey
from headrace.runtime.broadcast_tables import broadcast_tables
from headrace.runtime.planner import Planner
from headrace.schemas import MOMENT
from headrace.testing.elements import At, Side
from headrace.testing.engine import SOURCES, TIME, Setting
from headrace.testing.time_by_hand import by_hand, set_watermarks
from headrace.wheel.codec import decode
from headrace.wheel.operator import AnyOperator, Joined
from headrace.wheel.pack import Blob, pack, pack_both, pack_second
from headrace.wheel.pages import StateCache
from headrace.wheel.stateless import Stateless, pass_rows
from headrace.wheel.task import TABLES, Task
from headrace.wheel.turn import turn

FLOW = "timeline"
Frames = dict[int, list[pl.DataFrame]]
"""Rows by partition."""
WORKERS = 2


class MapInMemory:
    """Spark's map state as a dictionary."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int], tuple[bytes]] = {}

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:  # noqa: N802
        return self._entries.get(key)

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:  # noqa: N802
        self._entries[key] = value

    def removeKey(self, key: tuple[int]) -> None:  # noqa: N802
        self._entries.pop(key, None)

    def iterator(self) -> Iterator[tuple[tuple[int], tuple[bytes]]]:
        return iter(list(self._entries.items()))

    def copy(self) -> MapInMemory:
        copied = MapInMemory()
        copied._entries = dict(self._entries)
        return copied


class NothingToRead:
    """The reader of a gate whose rows are handed to it."""

    def read(self, raw: pl.DataFrame, task: Task) -> Iterator[Decoded]:
        yield from ()


class InlineEngine:
    """Runs batches in this process; key groups move between two workers' caches at random."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._operators = _bound(setting)
        setting.declare(name for operator in self._stateful() for name in operator.side_schemas)
        self._gates = {side: Gate(SOURCES[side], NothingToRead(), setting.strategy) for side in setting.schemas}
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-inline-"))
        self._log = MemoryBatchLog()
        self._state: defaultdict[tuple[str, int], MapInMemory] = defaultdict(MapInMemory)
        self._interrupted: Sequence[At] | None = None
        self._random = random.Random(7)
        self._next = 0
        self._start()

    def _start(self) -> None:
        """What every start of the process begins with: the log, the maps, and empty caches."""
        names = [operator.name for operator in self._stateful()]
        sources = [SOURCES[side] for side in self._setting.schemas]
        inputs = [tuple(NodeId("source", source) for source in sources), *((NodeId("step", name),) for name in names)]
        topology = Topology(
            dict.fromkeys(sources, self._setting.strategy),
            dict(zip(names, inputs, strict=False)),
            holdbacks={step.name: step.holdback for step in self._setting.steps},
        )
        self._caches = [StateCache() for _ in range(WORKERS)]
        self._tables = broadcast_tables(self._folder / TABLES, self._setting.steps)
        time = TimeKeeper(topology, lambda: self._setting.clock)
        self.planner = Planner(time, self._log, complete=self._tables.complete)
        if self._setting.by_hand:
            by_hand(time, self._setting)

    def run(self, rows: Sequence[At]) -> None:
        self._run(rows, commit=True)

    def finish(self) -> bool:
        if self._interrupted is None:
            return False
        again, self._interrupted = self._interrupted, None
        self._run(again, commit=True)
        return True

    def crash(self, rows: Sequence[At]) -> None:
        """Run a batch and lose all of it but its record; then start again."""
        if rows and self._interrupted is None:
            before = {place: entries.copy() for place, entries in self._state.items()}
            self._run(rows, commit=False)
            self._state = defaultdict(MapInMemory, before)
            self._interrupted = rows
        self._start()

    def close(self) -> None:
        """Remove the side files, and let go of what steps keep in this process."""
        for operator in self._operators:
            if isinstance(operator, Stateless):
                operator.close()
        shutil.rmtree(self._folder)

    def _run(self, rows: Sequence[At], *, commit: bool) -> None:
        set_watermarks(self.planner.time, self._setting)
        record = self.planner.plan(self._next)
        reports = BatchReports()

        def report(key: ReportKey, said: Report) -> None:
            reports.add(key[2], key[3], said)

        def task(partition: int) -> Task:
            return Task(record, FLOW, str(self._folder / "side"), partition, 0, report)

        frames = self._arrived(rows, "left", task)
        second = self._arrived(rows, "right", task) if "right" in self._setting.schemas else {}
        for operator in self._operators:
            if isinstance(operator, Stateless):
                if operator.gathered_by:
                    frames = {0: [frame for each in frames.values() for frame in each]}
                frames = {number: list(pass_rows(each, operator, task(number))) for number, each in frames.items()}
            else:
                frames, second = self._step(operator, frames, second, task), {}
        main = [row for each in frames.values() for frame in each for row in frame.rows(named=True)]
        side: defaultdict[tuple[NodeId, str], dict[str, int]] = defaultdict(dict)
        for node, parts in reports.nodes():
            for output, files in (item for part in parts.values() for item in part.side.items()):
                side[node, output].update(files)
        rows_out = {f"{node}.{output}": sum(files.values()) for (node, output), files in side.items()}
        written = {name: Written(count, count) for name, count in rows_out.items()}
        account_of(reports, {"main": Written(len(main), len(main)), **written}).check(flow=FLOW, batch=record.batch)
        if commit:
            self.planner.conclude(record, reports)
            self._tables.forget(record.tables)
            self._next += 1
            self._setting.give("main", main)
            for (_, output), named in side.items():
                for file in named:
                    self._setting.give(output, pl.read_ipc(file).rows(named=True))

    def _arrived(self, rows: Sequence[At], side: Side, task: Any) -> Frames:
        partitions: dict[int, list[At]] = {0: []}
        for row in rows:
            if row.side == side:
                partitions.setdefault(row.partition, []).append(row)
        admitted: Frames = {}
        for number, each in sorted(partitions.items()):
            frame = self._setting.frame(each, side).with_row_index(POSITION).cast({POSITION: pl.Int64})
            decoded = Decoded(frame, origin="timeline", arrived=self._setting.clock)
            admitted[number] = list(self._gates[side].admit([decoded], task(number)))
        return admitted

    def _stateful(self) -> list[AnyOperator]:
        return [operator for operator in self._operators if not isinstance(operator, Stateless)]

    def _step(self, operator: AnyOperator, frames: Frames, second: Frames, task: Any) -> Frames:
        blobs: defaultdict[int, list[Blob]] = defaultdict(list)
        for blob in self._packed(operator, frames, second, task):
            blobs[blob.key_group].append(blob)
        outputs: dict[int, list[pl.DataFrame]] = {number: [] for number in range(WORKERS)}
        for group, given in sorted(blobs.items()):
            self._random.shuffle(given)
            worker = self._random.randrange(WORKERS)
            entries = self._state[operator.name, group]
            result = turn(operator, entries, self._caches[worker], task(worker), given)
            if result is not None:
                outputs[worker].append(decode([result]))
        return outputs

    def _packed(self, operator: AnyOperator, frames: Frames, second: Frames, task: Any) -> Iterator[Blob]:
        for number, each in frames.items():
            if operator is self._operators[0] and self._halves is not None and isinstance(operator, Joined):
                yield from pack_both(each, operator, task(number), sides=self._halves)
            else:
                yield from pack(each, operator, task(number))
        if isinstance(operator, Joined):
            for number, each in second.items():
                yield from pack_second(each, operator, task(number))

    @cached_property
    def _halves(self) -> tuple[pl.Expr, pl.Expr] | None:
        """What the rows of one source must be to come to each input of the first step."""
        if self._setting.split is None:
            return None
        schema = _read(self._setting)[0]
        left, right = (parse_condition(text, schema).truth(schema) for text in self._setting.split)
        return left, right


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
