"""The wheel on Spark: pack and unpack as ``mapInArrow``, a turn as ``transformWithState`` over key groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from headrace.schemas import arrow_batches
from headrace.wheel.cache import WORKER
from headrace.wheel.codec import decode
from headrace.wheel.operator import AnyOperator, Joined
from headrace.wheel.pack import BLOB_SCHEMA, Blob, pack, pack_second
from headrace.wheel.task import Task, current_task
from headrace.wheel.turn import turn

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame

Read = Callable[[Iterator[pa.RecordBatch], Task], Iterable[pl.DataFrame]]
"""How a task turns what Spark hands it into frames of rows."""

_PAGE = StructType([StructField("page", IntegerType(), False)])
_BYTES = StructType([StructField("blob", BinaryType(), False)])
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


class WheelProcessor(StatefulProcessor):
    """Hands each key group's blobs and map state to the operator."""

    def __init__(self, operator: AnyOperator, reports: Accumulator[dict[Any, Any]]) -> None:
        self._operator = operator
        self._reports = reports

    def init(self, handle: Any) -> None:
        """Declare the state; its name holds the step's, so another step's state is never loaded."""
        self._entries = handle.getMapState(f"pages_{self._operator.name}", _PAGE, _BYTES)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """One turn of the wheel for a key group."""
        blobs = [Blob(key[0], row.origin, row.sequence, bytes(row.blob), row.second) for row in rows]
        result = turn(self._operator, self._entries, WORKER, current_task(self._reports), blobs)
        if result is not None:
            yield Row(blob=result)

    def close(self) -> None:
        """Nothing to release: the cache outlives the batch."""


def packed(
    frame: DataFrame, read: Read, operator: AnyOperator, reports: Accumulator[dict[Any, Any]], *, name: str
) -> DataFrame:
    """Rows of a frame as blobs by key group; ``name`` is what plans show."""

    def packing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = current_task(reports)
        yield from _record_batches(pack(read(batches, task), operator, task))

    packing.__name__ = name
    return frame.mapInArrow(packing, BLOB_SCHEMA)


def packed_second(
    frame: DataFrame, read: Read, operator: Joined, reports: Accumulator[dict[Any, Any]], *, name: str
) -> DataFrame:
    """Rows of a step's second input as blobs by key group."""

    def packing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = current_task(reports)
        yield from _record_batches(pack_second(read(batches, task), operator, task))

    packing.__name__ = name
    return frame.mapInArrow(packing, BLOB_SCHEMA)


def turned(blobs: DataFrame, operator: AnyOperator, reports: Accumulator[dict[Any, Any]]) -> DataFrame:
    """Blobs through the state of their key groups; the results as blobs."""
    processor = WheelProcessor(operator, reports)
    return blobs.groupBy("key_group").transformWithState(processor, "blob BINARY", "Append", "None")


def unpacked(blobs: DataFrame, schema: StructType) -> DataFrame:
    """The rows of blobs."""

    def unpacking(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in rows_of_blobs(batches):
            yield from arrow_batches(rows, schema)

    return blobs.mapInArrow(unpacking, schema)


def rows_of_blobs(batches: Iterator[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
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
    columns = [[getattr(blob, field.name) for blob in blobs] for field in _BLOBS]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, _BLOBS, strict=True)], _BLOBS
    )
