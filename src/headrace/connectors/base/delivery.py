"""Delivery of a batch to a sink that tasks write to: rows are divided among writers, each writes its part and mark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.checkpoint.lease import Lease
from headrace.checkpoint.outages import OutageMarker
from headrace.checkpoint.storage import Storage
from headrace.connectors.base.sink import BatchIdentity, Delivered, TaskSink, Unreachable, WriterBatch, Written
from headrace.event_time.record import MarkedBatch
from headrace.redaction import redacting
from headrace.schemas import from_arrow
from headrace.wheel.side_rows import dead_letters, write_rows

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
_COUNTS = ("out", "rows", "superseded", "already_marked", "refused", "skipped")
_RESULT = pa.schema([("writer", pa.int32()), *((name, pa.int64()) for name in _COUNTS), ("letters", pa.string())])


@dataclass(frozen=True, slots=True)
class DeliveryContext:
    """What the tasks of a batch need beside its identity."""

    writers: int
    marks: Mapping[int, MarkedBatch]
    """The last batch of this generation that each writer marked."""
    clock: int
    storage: Storage
    """The flow's."""
    lease: Lease


def deliver(frame: DataFrame, sink: TaskSink, batch: BatchIdentity, context: DeliveryContext) -> Written:
    """Run the frame once and write every row to the sink."""
    exactly_once = sink.guarantee == "exactly_once"
    if exactly_once:
        # Each writer's rows in the partition with its number, whatever partitions they come from.
        paths = flat_paths(frame.schema)
        chosen = [paths[column] for column in sink.partition_by] or [quoted(column) for column in frame.columns]
        writer = F.pmod(F.xxhash64(*map(F.col, chosen)), F.lit(context.writers))
        frame = frame.repartitionById(context.writers, writer.cast("int"))
    parts = frame.mapInArrow(partial(_write_part, sink, batch, context), from_arrow_schema(_RESULT)).collect()
    return Written(
        **{name: sum(part[name] for part in parts) for name in _COUNTS},
        letters={part.letters: part.refused for part in parts if part.refused > 0},
        marked=frozenset(part.writer for part in parts) if exactly_once else frozenset(),
    )


def flat_paths(schema: StructType, prefix: str = "", inside: str = "") -> dict[str, str]:
    """Spark's path of each column and each field of a struct, by its flattened name; a column's own name counts first.

    >>> from headrace.schemas import parse_ddl
    >>> flat_paths(parse_ddl("n INT, window STRUCT<start: DATE>"))
    {'n': '`n`', 'window': '`window`', 'window_start': '`window`.`start`'}
    """
    paths: dict[str, str] = {}
    for field in schema.fields:
        name, path = f"{prefix}{field.name}", f"{inside}{quoted(field.name)}"
        paths[name] = path
        if isinstance(field.dataType, StructType):
            for nested, inner in flat_paths(field.dataType, f"{name}_", f"{path}.").items():
                paths.setdefault(nested, inner)
    return paths


def quoted(column: str) -> str:
    """A quoted identifier in SQL text."""
    return f"`{column.replace('`', '``')}`"


def _write_part(
    sink: TaskSink, batch: BatchIdentity, context: DeliveryContext, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: write its rows as the writer with its number."""
    task = TaskContext.get()
    frames = [from_arrow(each) for each in batches if each.num_rows > 0]
    if not frames or task is None:
        return
    rows = pl.concat(frames)
    part = WriterBatch(batch, task.partitionId(), context.marks.get(task.partitionId()))
    with redacting():
        delivered = _deliver_when_reachable(sink, rows, part, context)
    letters = ""
    refused = pl.DataFrame() if delivered.refused is None else delivered.refused
    if not refused.is_empty():
        dead = refused.with_row_index("position")
        where = {"source": f"{batch.flow}.{batch.output}", "origin": sink.place}
        letter_rows = dead_letters(dead, **where, batch=batch.batch, clock=context.clock)
        letters = write_rows(context.storage, batch.batch, f"sink.{batch.output}", letter_rows)
    counts = (delivered.written, delivered.superseded, delivered.already_marked, refused.height, delivered.skipped)
    yield pa.record_batch([[value] for value in (part.number, rows.height, *counts, letters)], schema=_RESULT)


def _deliver_when_reachable(
    sink: TaskSink, rows: pl.DataFrame, part: WriterBatch, context: DeliveryContext
) -> Delivered:
    """Retry until the server takes the rows. Each attempt begins with the mark, so none writes twice."""
    outage = OutageMarker(context.storage, part.writer, sink.place)
    pause = FIRST_PAUSE
    while True:
        context.lease.check()
        try:
            delivered = sink.deliver(rows, part)
        except Unreachable as problem:
            outage.begin(str(problem))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            outage.end()
            return delivered
