"""The wheel on Spark: pack and unpack as ``mapInArrow``, a turn as ``transformWithState`` over key groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from headrace.reports import ReportAccumulator
from headrace.schemas import arrow_batches
from headrace.wheel.codec import decode, encode
from headrace.wheel.key_groups import group_of_rows
from headrace.wheel.operator import AnyOperator
from headrace.wheel.pack import BLOB_SCHEMA, Blob
from headrace.wheel.processor import WheelProcessor
from headrace.wheel.task import Task, current_task

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Read = Callable[[Iterator[pa.RecordBatch], Task], Iterable[pl.DataFrame]]
"""How a task turns what Spark hands it into frames of rows."""
Pack = Callable[..., Iterable[Blob]]
"""How a task makes blobs of frames of rows."""

_BLOBS = pa.schema(
    [
        ("key_group", pa.int32()),
        ("origin", pa.int32()),
        ("sequence", pa.int32()),
        ("blob", pa.binary()),
        ("second", pa.bool_()),
    ]
)
ARROW_BYTES = 64 << 20
_ORIGIN, _POSITION = "__origin", "__position"


def packed(frame: DataFrame, read: Read, pack: Pack, reports: ReportAccumulator, *, name: str) -> DataFrame:
    """Rows of a frame as blobs by key group; ``name`` is what plans show."""

    def packing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = current_task(reports)
        yield from _record_batches(pack(read(batches, task), task=task))

    packing.__name__ = name
    return frame.mapInArrow(packing, BLOB_SCHEMA)


def gathered(frame: DataFrame, read: Read, key: tuple[str, ...], reports: ReportAccumulator, *, name: str) -> DataFrame:
    """Rows of a frame as blobs, those of one key in one task; ``rows_in_order`` reads them there."""

    def gathering(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = current_task(reports)
        # One blob for each key group that has rows, however many frames they come in.
        frames = [rows for rows in read(batches, task) if not rows.is_empty()]
        if frames:
            rows = pl.concat(frames).with_row_index(_POSITION)
            grouped = rows.with_columns(group_of_rows(rows, key))
            parts = grouped.partition_by("key_group", as_dict=True, include_key=False).items()
            yield from _record_batches(Blob(int(group), task.partition, 0, encode(part)) for (group,), part in parts)

    gathering.__name__ = name
    # As many tasks as run at once, whatever the session says: they wait for services, and would wait one after another.
    tasks = frame.sparkSession.sparkContext.defaultParallelism
    return frame.mapInArrow(gathering, BLOB_SCHEMA).repartition(tasks, "key_group")


def rows_in_order(batches: Iterator[pa.RecordBatch], _task: Task | None = None) -> Iterator[pl.DataFrame]:
    """In a task: gathered rows in the order of the tasks they come from, and in their order there."""
    given = [batch.select(["origin", "blob"]).to_pydict() for batch in batches]
    blobs = [pair for each in given for pair in zip(each["origin"], each["blob"], strict=True)]
    if blobs:
        parts = [decode([blob]).with_columns(pl.lit(origin).alias(_ORIGIN)) for origin, blob in blobs]
        yield pl.concat(parts).sort(_ORIGIN, _POSITION).drop(_ORIGIN, _POSITION)


def turned(blobs: DataFrame, operator: AnyOperator, reports: ReportAccumulator) -> DataFrame:
    """Blobs through the state of their key groups; the results as blobs."""
    processor = WheelProcessor(operator, reports)
    with _workers_of_their_own(blobs.sparkSession.sparkContext):
        return blobs.groupBy("key_group").transformWithState(processor, "blob BINARY", "Append", "None")


@contextmanager
def _workers_of_their_own(context: SparkContext) -> Iterator[None]:
    """What is defined here runs in workers that do nothing else.

    A task gets the worker that has waited longest, and a worker keeps the state of every key group that it has met. The
    fewer there are, the more often a key group comes back to one that knows its state, and the fewer copies of it there
    are. Spark has a pool of workers for each environment.
    """
    given = context.environment
    context.environment = {**given, "HEADRACE_WORKERS": "state"}
    try:
        yield
    finally:
        context.environment = given


def unpacked(blobs: DataFrame, schema: StructType) -> DataFrame:
    """The rows of blobs."""

    def unpacking(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in rows_of_blobs(batches):
            yield from arrow_batches(rows, schema)

    return blobs.mapInArrow(unpacking, schema)


def rows_of_blobs(batches: Iterator[pa.RecordBatch], _task: Task | None = None) -> Iterator[pl.DataFrame]:
    """In a task: the rows of every blob."""
    for batch in batches:
        for blob in batch.column(0):
            yield decode([blob.as_py()])


def _record_batches(blobs: Iterable[Blob]) -> Iterator[pa.RecordBatch]:
    pending: list[Blob] = []
    size = 0
    for blob in blobs:
        pending.append(blob)
        size += len(blob.blob)
        if size > ARROW_BYTES:
            yield _record_batch(pending)
            pending, size = [], 0
    if pending:
        yield _record_batch(pending)


def _record_batch(blobs: list[Blob]) -> pa.RecordBatch:
    columns = [pa.array([getattr(blob, field.name) for blob in blobs], field.type) for field in _BLOBS]
    return pa.record_batch(columns, _BLOBS)
