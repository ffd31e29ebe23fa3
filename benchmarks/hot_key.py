"""What a batch costs when few keys have very many rows in the state: ``python -m benchmarks.hot_key``.

One slot, no Spark: each batch is packed and turned in this process. Shows the rows of the state that the operator gets
in a batch, and the median time of a turn.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import polars as pl

import headrace as hr
from headrace.checkpoint.storage import MemoryStorage
from headrace.durations import MICROSECONDS
from headrace.event_time.record import BatchRecord, TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.reports import ReportKey, SlotSummary, StateReport
from headrace.schemas import MOMENT
from headrace.state.group_range import KEY_GROUPS
from headrace.state.segment import OpenSegments
from headrace.state.slot_state import SlotState
from headrace.wheel.operator import AnyOperator, Joined
from headrace.wheel.pack import Blob, Input, pack
from headrace.wheel.task import Task, TaskState
from headrace.wheel.turn import turn

SECOND = MICROSECONDS["second"]
STORED, BATCH, BATCHES, LOADED = 1_000_000, 1_000, 20, 50_000
SCHEMA: Mapping[str, pl.DataType] = {"key": pl.Int64(), "x": pl.Float64(), "at": MOMENT}


@dataclass
class Slot:
    """The only slot of a step, batch by batch."""

    operator: AnyOperator
    folder: str
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    opened: OpenSegments = field(default_factory=OpenSegments)
    held: dict[int, SlotSummary] = field(default_factory=dict)
    batch: int = 0
    fired: int = BEGINNING

    def report(self, key: ReportKey, said: Any) -> None:
        if isinstance(said, StateReport):
            self.held[key[3]] = said.slot

    def run(self, left: pl.DataFrame, right: pl.DataFrame, fire: int) -> float:
        """Run a batch; the seconds that its turn took."""
        name, bounds = self.operator.name, TimeBounds(self.fired, fire, self.fired)
        edges = {name: bounds}
        record = BatchRecord(self.batch, 0, {}, edges, {}, drain=False)
        state = TaskState(self.storage, self.opened, KEY_GROUPS, 1, {name: dict(self.held)})
        task = Task(record, "flow", 0, self.report, state)
        blobs: list[Blob] = list(pack([left], [Input(self.operator)], task))
        if isinstance(self.operator, Joined):
            blobs += pack([right], [Input(self.operator, second=True)], task)
        start = time.perf_counter()
        for _ in turn(self.operator, task, 0, blobs):
            pass
        self.batch, self.fired = self.batch + 1, fire
        return time.perf_counter() - start


def rows(first: int, count: int, keys: int) -> pl.DataFrame:
    """1,000 rows a second, the keys in turn."""
    numbers = np.arange(first, first + count)
    frame = pl.DataFrame({"key": numbers % keys, "x": numbers * 1.0, "at": numbers * (SECOND // 1_000)})
    return frame.with_columns(pl.col("at").cast(MOMENT))


@dataclass(frozen=True)
class Case:
    """A step, and the rows that it stores before it is measured: 1,000 a second."""

    operator: AnyOperator
    keys: int = 1
    fill: int = STORED
    """The rows that fill the state."""
    left_alone: bool = False
    """Whether only the left side of a join brings rows."""
    lag: int = SECOND
    """How far the watermark is behind the newest row."""


def joined(step: Any) -> AnyOperator:
    operator: AnyOperator = step.bind(SCHEMA, "at", SCHEMA, "at")
    return operator


def windowed(step: Any) -> AnyOperator:
    operator: AnyOperator = step.bind(SCHEMA, "at")
    return operator


def cases() -> dict[str, Case]:
    late = hr.update_for("2 hours")
    near = hr.interval_join("j", on="key", between=("-1 second", "1 second"))
    wide = hr.interval_join("j", on="key", between=("-2 hours", "2 hours")).late(hr.drop())
    recent = hr.sliding("s", size="1 second", key="key").agg(total="sum(x)")
    same = hr.window_join("w", on="key", window="2 hours").late(hr.drop())
    seconds = hr.tumbling("t", size="1 second", key="key").agg(total="sum(x)").late(late)
    revised = hr.tumbling("t", size="1 second", key="key").agg(total="sum(x)").emit(hr.on_update()).late(late)
    return {
        "interval join, 1 second, late rows for 2 hours": Case(joined(near.late(late))),
        "interval join, 2 hours, left rows only": Case(joined(wide), left_alone=True),
        "window join, 2 hours": Case(joined(same)),
        "sliding, 1 second, late rows for 2 hours": Case(windowed(recent.late(late))),
        "sliding, 1 second, watermark far behind": Case(windowed(recent.late(hr.drop())), lag=7_200 * SECOND),
        "tumbling, 1 second, late rows for 2 hours, 500 keys": Case(windowed(seconds), keys=500, fill=2 * STORED),
        "tumbling, the same, on update": Case(windowed(revised), keys=500, fill=2 * STORED),
    }


def measure(case: Case, folder: str) -> tuple[int, int, float]:
    """Rows of the state, and those that the operator gets in a batch, and milliseconds a batch: medians."""
    slot, first, none = Slot(case.operator, folder), 0, rows(0, 0, 1)

    def batch(count: int) -> float:
        nonlocal first
        left, right = rows(first, count, case.keys), rows(first, count // 10, case.keys)
        first += count
        return slot.run(left, none if case.left_alone else right, first * (SECOND // 1_000) - case.lag)

    while first < case.fill:
        batch(LOADED)
    found: list[int] = []
    with noting(found):
        times = [batch(BATCH) for _ in range(BATCHES)]
    return slot.held[0].rows, round(statistics.median(found)), statistics.median(times) * 1_000


@contextmanager
def noting(found: list[int]) -> Iterator[None]:
    """Note how many rows each lookup finds."""
    find = SlotState.find

    def noted(state: SlotState, *args: Any) -> pl.DataFrame:
        frame = find(state, *args)
        found.append(frame.height)
        return frame

    with mock.patch.object(SlotState, "find", noted):
        yield


if __name__ == "__main__":
    print(f"batches of {BATCH:,} rows | rows in the state | rows that the operator gets | ms a batch")
    for name, case in cases().items():
        with tempfile.TemporaryDirectory() as folder:
            stored, found, milliseconds = measure(case, folder)
        print(f"{name} | {stored:,} | {found:,} | {milliseconds:,.1f}", flush=True)
