"""What overlap costs: windows of an hour every minute beside windows of an hour, without Spark and without emission.

``python -m benchmarks.windows.overlap`` measures once and prints JSON; it is a process of its own because Polars must
be told before it is loaded that there is one thread.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from headrace.wheel.operator import Operator

KEYS, MINUTES, ROWS_PER_KEY_AND_MINUTE = 1_000, 180, 20
MINUTES_PER_BATCH = 5
TASKS = 2
MINUTE = 60_000_000
FIRST_TIME = 1_767_225_600_000_000
OPEN_WINDOWS = {"tumbling60": 1, "hopping60": 60}


@dataclass(frozen=True, slots=True)
class Overlap:
    """The cost of both kinds in processor seconds, medians of all runs, and what their state holds."""

    seconds: dict[str, float]
    with_emission: dict[str, float]
    bytes_per_window: dict[str, float]
    """Stored bytes for each open window of each key."""

    @property
    def ratio(self) -> float:
        """How many times as much overlapping windows cost."""
        return self.seconds["hopping60"] / self.seconds["tumbling60"]


def measure_overlap(runs: int) -> Overlap:
    """Measure in fresh processes, one after the other."""
    command = [sys.executable, "-m", "benchmarks.windows.overlap"]
    surroundings = {**os.environ, "POLARS_MAX_THREADS": "1"}
    found = [
        json.loads(subprocess.run(command, env=surroundings, check=True, capture_output=True, text=True).stdout)
        for _ in range(runs)
    ]

    def medians(what: str) -> dict[str, float]:
        return {kind: statistics.median(one[what][kind] for one in found) for kind in OPEN_WINDOWS}

    return Overlap(medians("seconds"), medians("with_emission"), medians("bytes_per_window"))


def _batches() -> Iterator[pl.DataFrame]:
    import numpy as np
    import polars as pl

    random = np.random.default_rng(7)
    rows = KEYS * ROWS_PER_KEY_AND_MINUTE * MINUTES_PER_BATCH
    for first in range(0, MINUTES, MINUTES_PER_BATCH):
        at = FIRST_TIME + first * MINUTE + np.arange(rows) * (MINUTES_PER_BATCH * MINUTE) // rows
        columns = {"key": np.arange(rows) % KEYS, "at": at, "amount": random.integers(1, 1_000_000, rows)}
        yield pl.DataFrame(columns).with_columns(pl.col("at").cast(pl.Datetime("us", "UTC")))


def _run(operator: Operator, batches: list[pl.DataFrame], *, emitting: bool) -> tuple[float, int]:
    """Processor seconds of all batches, and the bytes of state after the last."""
    from headrace.checkpoint.storage import MemoryStorage
    from headrace.event_time.record import BatchRecord, TimeBounds
    from headrace.event_time.strategy import BEGINNING
    from headrace.reports import Report, ReportKey, SlotSummary, StateReport
    from headrace.state.group_range import KEY_GROUPS
    from headrace.state.segment import OpenSegments
    from headrace.wheel.pack import Blob, Input, pack
    from headrace.wheel.task import Task, TaskState
    from headrace.wheel.turn import turn

    held: dict[int, SlotSummary] = {}
    state = TaskState(MemoryStorage(), OpenSegments(), KEY_GROUPS, 1, {operator.name: held})

    def report(key: ReportKey, said: Report) -> None:
        if isinstance(said, StateReport):
            held[key[3]] = said.slot

    watermark = BEGINNING
    seconds = 0.0
    for number, rows in enumerate(batches):
        # An operator that is told that everything has been fired already emits nothing, and forgets what is over.
        before, fired = watermark, FIRST_TIME + number * MINUTES_PER_BATCH * MINUTE
        watermark = fired
        bounds = TimeBounds(watermark, watermark, before=before if emitting else watermark)
        record = BatchRecord(number, 0, {}, {operator.name: bounds}, {}, drain=False, slots=TASKS)
        began = time.process_time()
        slots: dict[int, list[Blob]] = {}
        for part in range(TASKS):
            task = Task(record, "overlap", part, report, state)
            for blob in pack([rows.gather_every(TASKS, part)], [Input(operator)], task):
                slots.setdefault(blob.slot, []).append(blob)
        for slot, blobs in slots.items():
            list(turn(operator, task, slot, blobs))
        seconds += time.process_time() - began
    return seconds, sum({each.file: each.size for slot in held.values() for each in slot.segments}.values())


def main() -> None:
    """Measure both kinds in turns, batch after batch of the same rows."""
    import polars as pl

    import headrace as hr

    schema = {"key": pl.Int64(), "at": pl.Datetime("us", "UTC"), "amount": pl.Int64()}
    steps = {
        "tumbling60": hr.tumbling("windows", size="1 hour", key="key"),
        "hopping60": hr.hopping("windows", size="1 hour", every="1 minute", key="key"),
    }
    batches = list(_batches())
    found: dict[str, dict[str, float]] = {"seconds": {}, "with_emission": {}, "bytes_per_window": {}}
    for emitting, what in ((False, "warm_up"), (False, "seconds"), (True, "with_emission")):
        for kind, step in steps.items():
            operator = step.agg(n="count(*)", total="sum(amount)").late(hr.drop()).bind(schema, "at")
            seconds, held = _run(operator, batches, emitting=emitting)
            found.setdefault(what, {})[kind] = seconds
            found["bytes_per_window"][kind] = held / (KEYS * OPEN_WINDOWS[kind])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
