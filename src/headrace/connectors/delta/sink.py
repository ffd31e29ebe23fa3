"""The Delta sink: a batch's rows and its mark are one commit of the table's log, exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, DayTimeIntervalType, StructType

from headrace.connectors.base.sink import (
    BatchIdentity,
    ChangelogMode,
    DriverSink,
    Guarantee,
    Mark,
    WriterBatch,
    Written,
)
from headrace.connectors.delta.table import DeltaLog, DeltaWriter, table_place
from headrace.errors import DefinitionError, HeadraceError
from headrace.keys import key_columns
from headrace.schemas import shown_type
from headrace.secrets import call_text
from headrace.stability import stable

COUNTED = "spark.databricks.delta.stats.collect"


def check_fit(log: DeltaLog, columns: StructType, partition_by: Sequence[str]) -> None:
    """Fail when rows of these columns cannot be written to the table as it is now."""
    problem = next(_problems(log, columns, partition_by), None)
    if problem is not None:
        raise DefinitionError("DELTA_SCHEMA", f"Delta table {log.path!r}: {problem}")
    if log.spark.conf.get(COUNTED, "true") == "false":
        raise HeadraceError(
            "DELTA_STATISTICS_OFF",
            f"{COUNTED}=false keeps Delta from counting rows, which the account needs. Set it to true.",
        )


def _problems(log: DeltaLog, columns: StructType, partition_by: Sequence[str]) -> Iterator[str]:
    if not log.exists():
        return
    held = {field.name: field for field in log.schema().fields}
    partitions = log.partition_columns()
    for field in columns.fields:
        if field.name not in held:
            yield f"it has no column {field.name!r}, only {', '.join(held)}. Add the column or select others."
        # Neither nullability nor comments are part of these names.
        elif (given := shown_type(field.dataType)) != (kept := shown_type(held[field.name].dataType)):
            yield f"column {field.name!r} is {kept}, the rows have {given}. Cast it."
    for name, field in held.items():
        if name not in columns.names and (not field.nullable or name in partitions):
            yield f"the rows lack its column {name!r}, which cannot be left out. Add it to the rows."
    if partition_by and tuple(partition_by) != partitions:
        now = ", ".join(partitions) or "no column"
        wanted = ", ".join(partition_by)
        yield f"it is partitioned by {now}, not by {wanted}. Leave partition_by out, or write to another path."


def _holds_interval(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_interval(field.dataType) for field in kind.fields)
    return _holds_interval(kind.elementType) if isinstance(kind, ArrayType) else isinstance(kind, DayTimeIntervalType)


@dataclass(frozen=True, slots=True)
class DeltaSink(DriverSink):
    """A Delta table to which batches are appended, or into which they are merged by key."""

    guarantee: ClassVar[Guarantee] = "exactly_once"
    path: str
    upsert_on: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        return f"Delta table {self.path!r}"

    @property
    def why(self) -> str:
        return (
            "each batch is one commit that holds its rows and its number as a transaction identifier; Delta drops or "
            "refuses a second one, of a re-run or of a driver that lost its lease, as long as the table keeps "
            "identifiers (delta.setTransactionRetentionDuration, for ever unless set)"
        )

    def check_columns(self, columns: StructType) -> None:
        for column in (*self.upsert_on, *self.partition_by):
            if column not in columns.names:
                raise DefinitionError(
                    "COLUMN_UNKNOWN", f"{self!r} needs column {column!r}, but the rows have {', '.join(columns.names)}."
                )
        for field in columns.fields:
            if _holds_interval(field.dataType):
                raise DefinitionError(
                    "DELTA_SCHEMA",
                    f"{self.target}: column {field.name!r} is {shown_type(field.dataType)}, which Delta cannot store. "
                    f"Convert it before the sink: frame.withColumn({field.name!r}, F.col({field.name!r})"
                    ".cast('bigint')) gives seconds.",
                )

    def check_target(self, frame: DataFrame) -> None:
        check_fit(DeltaLog(frame.sparkSession, table_place(self.path)), frame.schema, self.partition_by)

    @property
    def changelog_mode(self) -> ChangelogMode:
        return "upsert" if self.upsert_on else "append"

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        log = DeltaLog(SparkSession.active(), table_place(self.path))
        return [DeltaWriter(log, part.batch).mark() for part in parts]

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        log = DeltaLog(frame.sparkSession, table_place(self.path))
        table = DeltaWriter(log, batch)
        if table.is_written():
            # The batch must run all the same, because the steps before this sink update their state.
            rows = frame.count()
            return Written(rows, 0, already_marked=rows)
        stored = table.stored(frame) if self.upsert_on else frame
        table.create_if_missing(stored.schema, self.partition_by)
        rows, kept = table.upsert(frame, self.upsert_on) if self.upsert_on else (table.append(frame),) * 2
        return Written(rows, kept, superseded=rows - kept)

    def __repr__(self) -> str:
        return call_text(to_delta, self.path, upsert_on=self.upsert_on, partition_by=self.partition_by)


@stable
def to_delta(
    path: str | os.PathLike[str],
    *,
    upsert_on: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
) -> DeltaSink:
    """Write results to a Delta table, exactly once; a missing table is created, empty batches make no commit.

    Without ``upsert_on`` rows are appended. With it a row replaces the one with the same key, and a changelog's deletes
    remove it; of several changes of a key in one batch the last one counts. ``partition_by`` names the partition
    columns of a table that is created.

    >>> to_delta("tables/spend", upsert_on=["account", "window"])
    hr.to_delta('tables/spend', upsert_on=['account', 'window'])
    """
    return DeltaSink(os.fspath(path), _names("upsert_on", upsert_on), _names("partition_by", partition_by))


def _names(option: str, given: str | Sequence[str] | None) -> tuple[str, ...]:
    names = key_columns(given, argument=option)
    if given is not None and not names:
        raise DefinitionError("COLUMNS_MISSING", f"to_delta: {option}=[] names no column. Name one or leave it out.")
    return names
