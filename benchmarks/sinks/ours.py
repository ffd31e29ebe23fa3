"""Headrace's way: batch after batch divided among writers, each part with its mark, as a flow does it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.sinks.rows import PARTITIONS, Rows
from headrace.checkpoint.lease import take_lease
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.delivery import DeliveryContext, deliver
from headrace.connectors.base.sink import BatchIdentity, TaskSink, writer_name
from headrace.event_time.record import MarkedBatch
from headrace.schemas import polars_schema


def delivery(sink: TaskSink, rows: Rows, checkpoint: Path) -> Callable[[int], None]:
    """A function that writes a batch, after all that is done before a flow's first one."""
    lease = take_lease(LocalStorage(checkpoint))
    flow = checkpoint.name
    writers = [writer_name(flow, "main", number) for number in range(PARTITIONS)]
    sink.prepare(polars_schema(rows.frame(0).schema), writers, lease.epoch)
    marks: dict[int, MarkedBatch] = {}

    def write(batch: int) -> None:
        identity = BatchIdentity(flow, 0, batch, "main", flow, lease.epoch)
        clock = time.time_ns() // 1000
        context = DeliveryContext(PARTITIONS, dict(marks), clock, LocalStorage(checkpoint), lease)
        marked = deliver(rows.frame(batch), sink, identity, context).marked
        marks.update(dict.fromkeys(marked, MarkedBatch(batch)))

    return write
