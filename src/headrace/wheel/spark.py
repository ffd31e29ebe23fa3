"""The wheel on Spark: pack, turn and unpack as ``mapInArrow``, with one shuffle that brings blobs to their slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headrace.key_hash import hashes_of
from headrace.redaction import redacting
from headrace.schemas import arrow_batches
from headrace.wheel.codec import decode, encode
from headrace.wheel.operator import AnyOperator
from headrace.wheel.pack import BLOB_SCHEMA, Blob, Input, pack
from headrace.wheel.stateless import Stateless, pass_rows
from headrace.wheel.task import Task
from headrace.wheel.turn import turn

Read = Callable[[Iterator[pa.RecordBatch], Task], Iterable[pl.DataFrame]]
"""How a task turns what Spark hands it into frames of rows."""
ThisTask = Callable[[], Task]
"""What the code in a task knows of it."""

_BLOBS = pa.schema(
    [
        ("slot", pa.int32()),
        ("origin", pa.int32()),
        ("sequence", pa.int32()),
        ("blob", pa.binary()),
        ("second", pa.bool_()),
        ("step", pa.int32()),
    ]
)
ARROW_BYTES = 64 << 20
_ORIGIN, _POSITION, _SLOT = "__origin", "__position", "__slot"


def packed(frame: DataFrame, read: Read, inputs: Sequence[Input], this_task: ThisTask, *, name: str) -> DataFrame:
    """Rows of a frame as blobs for the inputs of steps; ``name`` is what plans show."""

    def packing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with redacting():
            task = this_task()
            yield from _record_batches(pack(read(batches, task), inputs, task))

    packing.__name__ = name
    return frame.mapInArrow(packing, BLOB_SCHEMA)


def gathered(frame: DataFrame, read: Read, key: tuple[str, ...], this_task: ThisTask, *, name: str) -> DataFrame:
    """Rows of a frame as blobs, those of one key in one task; ``rows_in_order`` reads them there."""
    # As many tasks as run at once, whatever the session says: they wait for services, and would wait one after another.
    tasks = frame.sparkSession.sparkContext.defaultParallelism

    def gathering(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = this_task()
        # One blob for each task after the shuffle, however many frames the rows come in.
        with redacting():
            frames = [rows for rows in read(batches, task) if not rows.is_empty()]
        if frames:
            rows = pl.concat(frames).with_row_index(_POSITION)
            slots = (hashes_of(rows, key) % np.uint64(tasks)).astype(np.int32)
            grouped = rows.with_columns(pl.Series(_SLOT, slots))
            parts = grouped.partition_by(_SLOT, as_dict=True, include_key=False).items()
            yield from _record_batches(Blob(int(slot), task.partition, 0, encode(part)) for (slot,), part in parts)

    gathering.__name__ = name
    return frame.mapInArrow(gathering, BLOB_SCHEMA).repartitionById(tasks, "slot")


def rows_in_order(batches: Iterator[pa.RecordBatch], _task: Task | None = None) -> Iterator[pl.DataFrame]:
    """In a task: gathered rows in the order of the tasks they come from, and in their order there."""
    given = [batch.select(["origin", "blob"]).to_pydict() for batch in batches]
    blobs = [pair for each in given for pair in zip(each["origin"], each["blob"], strict=True)]
    if blobs:
        parts = [decode([blob]).with_columns(pl.lit(origin).alias(_ORIGIN)) for origin, blob in blobs]
        yield pl.concat(parts).sort(_ORIGIN, _POSITION).drop(_ORIGIN, _POSITION)


def by_slot(blobs: DataFrame, tasks: int) -> DataFrame:
    """Blobs shuffled to the tasks of their slots."""
    from pyspark.sql import functions as F

    return blobs.repartitionById(tasks, F.pmod("slot", F.lit(tasks)).cast("int"))


def turned(batches: Iterator[pa.RecordBatch], task: Task, operator: AnyOperator) -> Iterator[pl.DataFrame]:
    """In a task: the results of its slots."""
    yield from _turned((Blob(**row) for batch in batches for row in batch.to_pylist()), task, operator)


def chained(
    batches: Iterator[pa.RecordBatch], task: Task, *, before: Read, operator: AnyOperator
) -> Iterator[pl.DataFrame]:
    """In a task: the results of its slots, of rows that the step before it gives in this very task."""
    given = list(batches)
    own = {slot for batch in given for slot in batch.column("slot").to_pylist()}
    blobs = [blob for blob in pack(before(iter(given), task), [Input(operator)], task) if blob.blob]
    assert own.issuperset(blob.slot for blob in blobs), "rows have left the slots of their key"
    yield from _turned([*(Blob(slot, -1, 0, b"") for slot in own), *blobs], task, operator)


def passed(batches: Iterator[pa.RecordBatch], task: Task, *, read: Read, operator: Stateless) -> Iterator[pl.DataFrame]:
    """In a task: what a step without state makes of its rows."""
    return pass_rows(read(batches, task), operator, task)


def _turned(blobs: Iterable[Blob], task: Task, operator: AnyOperator) -> Iterator[pl.DataFrame]:
    """Turn the slots that rows come to, and of those that the task has the ones in which something is due."""
    due = frozenset(task.record.wake.get(operator.name, ()))
    slots: dict[int, list[Blob]] = {}
    for blob in blobs:
        if blob.blob or blob.slot in due:
            slots.setdefault(blob.slot, []).append(blob)
    for slot in sorted(slots):
        yield from turn(operator, task, slot, slots[slot])


def mapped(frame: DataFrame, read: Read, schema: StructType, this_task: ThisTask, *, name: str) -> DataFrame:
    """What tasks read of a frame, as rows; ``name`` is what plans show."""

    def mapping(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with redacting():
            for rows in read(batches, this_task()):
                yield from arrow_batches(rows, schema)

    mapping.__name__ = name
    return frame.mapInArrow(mapping, schema)


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
