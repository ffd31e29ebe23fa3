"""Rows that leave beside the main output, dead letters among them: Arrow files that a task writes and reports."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl
from pyarrow import ipc
from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.storage import Storage
from headrace.redaction import HIDDEN, secrets_pattern
from headrace.schemas import MOMENT, arrow_batches, spark_schema
from headrace.wheel.task import SIDE, Task

if TYPE_CHECKING:
    import pyarrow as pa


def write_side_rows(task: Task, node: str, output: str, frames: Sequence[pl.DataFrame]) -> tuple[tuple[str, int], ...]:
    """Write a task's side rows to a file; returns its name and number of rows, or nothing."""
    rows = pl.concat(frames) if frames else pl.DataFrame()
    if rows.is_empty():
        return ()
    return ((write_rows(task.state.storage, task.record.batch, f"{node}/{output}", rows), rows.height),)


def write_rows(storage: Storage, batch: int, place: str, rows: pl.DataFrame) -> str:
    """Write rows to a side file of a batch; its name is nobody else's, because a task may run twice at once."""
    name, content = f"{SIDE}/{place}/{batch}-{uuid.uuid4().hex}.arrow", io.BytesIO()
    rows.write_ipc(content, compat_level=pl.CompatLevel.oldest())
    storage.write(name, content.getbuffer())
    return name


def read_rows(storage: Storage, file: str) -> pl.DataFrame:
    """The rows of an Arrow file; where the storage maps it, they are not copied."""
    rows = pl.from_arrow(ipc.open_file(storage.open(file)).read_all())
    assert isinstance(rows, pl.DataFrame)
    return rows


def side_frame(
    spark: SparkSession, storage: Storage, files: Sequence[str], schema: Mapping[str, pl.DataType]
) -> DataFrame:
    """The rows of side files as a DataFrame that is read in tasks."""
    rows = spark_schema(schema)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.column("file").to_pylist():
                yield from arrow_batches(read_rows(storage, file), rows)

    names = spark.createDataFrame([(file,) for file in files], "file STRING").coalesce(1)
    return names.mapInArrow(read, rows)


DEAD_LETTERS = "dead_letters"
DEAD_LETTER_SCHEMA = {
    "source": pl.String(),
    "origin": pl.String(),
    "position": pl.Int64(),
    "reason": pl.String(),
    "detail": pl.String(),
    "raw": pl.Binary(),
    "batch": pl.Int64(),
    "read_at": MOMENT,
}


def dead_letters(dead: pl.DataFrame, *, source: str, origin: str, batch: int, clock: int) -> pl.DataFrame:
    """Dead letters from rows with ``position``, ``reason``, ``detail`` and ``raw``; ``clock`` is in microseconds."""
    return dead.select(
        pl.lit(source).alias("source"),
        pl.lit(origin).alias("origin"),
        pl.col("position").cast(pl.Int64),
        "reason",
        _redacted(pl.col("detail")),
        "raw",
        pl.lit(batch, pl.Int64).alias("batch"),
        pl.lit(clock).cast(MOMENT).alias("read_at"),
    )


def _redacted(text: pl.Expr) -> pl.Expr:
    secrets = secrets_pattern()
    return text if secrets is None else text.str.replace_all(secrets, HIDDEN)


def failed_letters(failed: pl.DataFrame, *, step: str, task: Task) -> pl.DataFrame:
    """Dead letters from rows that a step's user function failed on."""
    dead = failed.select(
        pl.lit(None, pl.Int64).alias("position"), "reason", "detail", pl.col("row").cast(pl.Binary).alias("raw")
    )
    return dead_letters(dead, source=step, origin=f"step {step}", batch=task.record.batch, clock=task.record.clock)
