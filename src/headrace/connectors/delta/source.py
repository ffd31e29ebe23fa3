"""``hr.read_delta``: the rows of a Delta table, or its change feed as a changelog, each once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headrace.changelog import CHANGE, CHANGELOG, UPDATE_AFTER, UPDATE_BEFORE
from headrace.changelog import POSITION as CHANGE_POSITION
from headrace.connectors.base.decoding import POSITION, Decoded
from headrace.connectors.base.source import Gate, add_source, source_name
from headrace.connectors.delta.table import DeltaLog, table_place, without_metadata
from headrace.errors import DefinitionError, HeadraceError
from headrace.schemas import polars_schema
from headrace.stability import stable
from headrace.wheel.task import Task

Start = Literal["earliest", "latest"] | int
COMMITTED, VERSION = "_commit_timestamp", "_commit_version"
FEED = "delta.enableChangeDataFeed"
_ROW, _FILE, _KIND = "__row", "__file", "_change_type"
_WORDS = {"update_preimage": UPDATE_BEFORE, "update_postimage": UPDATE_AFTER}
_DIGITS = 20
_NOT_APPENDED = ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE")


@dataclass(slots=True)
class DeltaReader:
    """Takes rows as Spark read them: they have their types, so only their time can make them dead letters."""

    columns: tuple[str, ...]
    read_before: int = 0
    """Rows that the task has read so far; every task has its own reader."""

    def read(self, raw: pl.DataFrame, task: Task) -> Iterator[Decoded]:
        for chunk in raw.drop_nulls(_ROW).partition_by(_FILE, maintain_order=True):
            first, self.read_before = self.read_before, self.read_before + chunk.height
            positions = pl.int_range(first, self.read_before, eager=True).alias(POSITION)
            if CHANGE in chunk.columns:
                chunk = chunk.with_columns(pl.col(CHANGE).replace(_WORDS))
            arrived = chunk[COMMITTED].cast(pl.Int64) if COMMITTED in self.columns else task.record.clock
            rows = chunk.select(*self.columns, positions)
            yield Decoded(rows, origin=chunk[_FILE][0], arrived=arrived)


@stable
def read_delta(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    changes: bool = False,
    start: Start = "earliest",
    name: str | None = None,
    files_per_batch: int | None = None,
) -> DataFrame:
    """The rows of a Delta table: what is in it when a flow begins, then what is appended.

    A table whose rows are updated or deleted is read with ``changes=True``: every row then has a column ``change``
    (``insert``, ``update_before``, ``update_after``, ``delete``), a ``position`` that orders the changes of a key (the
    version of the commit, as text), ``_commit_version`` and ``_commit_timestamp``. ``start`` is ``"earliest"``,
    ``"latest"`` (only what comes from now on) or a version of the table, whose own rows are the first; only a new
    checkpoint uses it.

    >>> import headrace as hr
    >>> @hr.pipeline
    ... def orders(spark):
    ...     changes = hr.read_delta(spark, "tables/orders", changes=True)
    ...     hr.write("orders", changes, hr.to_console())
    """
    location = os.fspath(path)
    log = DeltaLog(spark, table_place(location))
    _check(log, changes, start)
    reader = spark.readStream.format("delta")
    if changes:
        reader = reader.option("readChangeFeed", "true")
    if start != "earliest":
        reader = reader.option("startingVersion", str(start))
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    table = reader.load(log.path)
    if changes:
        taken = [name for name in CHANGELOG if name in table.columns]
        if taken:
            raise DefinitionError(
                "COLUMN_EXISTS", f"Delta table {location!r} has a column {taken[0]!r} of its own. Rename it."
            )
        position = F.lpad(F.col(VERSION).cast("string"), _DIGITS, "0")
        table = table.withColumnRenamed(_KIND, CHANGE).withColumn(CHANGE_POSITION, position)
    struct = without_metadata(table.schema)
    gate = Gate(source_name(name, Path(location.rstrip("/")).name), DeltaReader(tuple(polars_schema(struct))), None)
    return add_source(
        gate,
        table.withColumns({_ROW: F.lit(True), _FILE: F.input_file_name()}),
        struct,
        {"kind": "delta", "path": location, "changes": changes},
        cap=files_per_batch,
        understand=lambda error: not_append_only(error, location),
        changes=changes,
    )


def _check(log: DeltaLog, changes: bool, start: Start) -> None:
    if not log.exists():
        raise DefinitionError("SOURCE_MISSING", f"there is no Delta table at {log.path!r}. Create it first.")
    newest = log.version()
    known = start in ("earliest", "latest") if isinstance(start, str) else 0 <= start <= newest
    if not known or isinstance(start, bool):
        raise DefinitionError(
            "START_UNKNOWN",
            f"Delta table {log.path!r}: start={start!r} is not known. Use 'earliest', 'latest' or at most {newest}.",
        )
    if changes and log.setting(FEED) != "true":
        raise DefinitionError(
            "CHANGE_FEED_OFF",
            f"Delta table {log.path!r} has no change feed. Turn it on with ALTER TABLE ... SET TBLPROPERTIES "
            f"('{FEED}' = 'true'), or read the table with changes=False.",
        )


def not_append_only(error: BaseException, path: str) -> HeadraceError | None:
    """The error for a Delta failure that means: rows were updated or deleted; None for other failures."""
    if not any(f"[{condition}]" in str(error) for condition in _NOT_APPENDED):
        return None
    return HeadraceError(
        "DELTA_NOT_APPEND_ONLY",
        f"rows of Delta table {path!r} were updated or deleted, which a reader of appended rows cannot follow. "
        "Read it with hr.read_delta(..., changes=True) and a new checkpoint.",
    )
