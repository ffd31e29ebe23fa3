"""Headrace's way: batch after batch dealt out to writers, each share with its mark, as a flow does it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.sinks.rows import PARTITIONS, Rows
from headrace.connectors.base.delivery import Terms, deliver
from headrace.connectors.base.sink import BatchIdentity, TaskSink, Writer
from headrace.runtime.checkpoint import take_lease
from headrace.schemas import polars_schema


def delivery(sink: TaskSink, rows: Rows, checkpoint: Path) -> Callable[[int], None]:
    """A function that writes a batch, after all that is done before a flow's first one."""
    lease = take_lease(checkpoint)
    flow = checkpoint.name
    writers = [Writer(flow, "main", number, lease.epoch) for number in range(PARTITIONS)]
    sink.prepare(polars_schema(rows.frame(0).schema), writers)
    marks: dict[int, int] = {}

    def write(batch: int) -> None:
        identity = BatchIdentity(flow, 0, batch, "main", flow, lease.epoch)
        clock = time.time_ns() // 1000
        terms = Terms(PARTITIONS, dict(marks), clock, str(checkpoint), str(checkpoint / "side"), lease)
        marks.update(deliver(rows.frame(batch), sink, identity, terms).marks)

    return write
