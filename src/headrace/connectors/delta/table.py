"""Delta tables: commits of batches, and the newest version as a small table."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from headrace.changelog import CHANGE, DELETE, UPDATE_BEFORE
from headrace.connectors.base.small_table import fitted
from headrace.connectors.delta.log import DeltaLog, listed, table_place
from headrace.errors import HeadraceError
from headrace.schemas import polars_schema
from headrace.stability import stable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


APPLICATION, VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_LAST, _CHANGES, _ORDER = "__last", "__changes", "__order"
# A MERGE takes its mark from the session's settings, and the flows of a pipeline may share a session.
_MERGING = threading.Lock()


@dataclass(frozen=True, slots=True)
class TransactionId:
    """What a batch stores in the table's log with its rows: Delta's transaction identifier."""

    application: str
    version: int


@dataclass(frozen=True, slots=True)
class DeltaWriter:
    """Writes batches to a table, each as one commit."""

    log: DeltaLog

    def has(self, mark: TransactionId) -> bool:
        """Whether the table holds this batch."""
        last = self.log.mark(mark.application)
        return last is not None and last >= mark.version

    def create_if_missing(self, columns: StructType, partition_by: Sequence[str]) -> None:
        """Create an empty table of these columns if there is none."""
        if not self.log.exists():
            # Headrace's column metadata does not belong into the table.
            plain = StructType([StructField(field.name, field.dataType, field.nullable) for field in columns.fields])
            empty = self.log.spark.createDataFrame([], plain)
            empty.write.format("delta").mode("append").partitionBy(*partition_by).save(self.log.path)

    def append(self, frame: DataFrame, mark: TransactionId) -> int:
        """Append the frame's rows, running it once; returns their number. Without rows there is no commit.

        Spark's own append would commit an empty batch too, and to count rows first the frame would have to run twice or
        be cached: measured, caching makes an append half as slow again.
        """
        transaction = self.log.java.startTransaction()
        # Reading it makes Delta refuse this commit when another writer marks the batch at the same time.
        transaction.txnVersion(mark.application)
        files = transaction.writeFiles(frame._jdf)
        rows = sum(int(file.numLogicalRecords().get()) for file in listed(files))
        if rows:
            delta: Any = self.log.jvm.org.apache.spark.sql.delta
            some = self.log.jvm.scala.Option.apply
            written = delta.actions.SetTransaction(mark.application, mark.version, some(time.time_ns() // 1_000_000))
            append = self.log.jvm.org.apache.spark.sql.streaming.OutputMode.Append()
            operation = getattr(delta, "DeltaOperations$StreamingUpdate")(
                append, mark.application, mark.version, some(None)
            )
            with self._unless_fenced(mark):
                transaction.commit(files.appended(written), operation)
        return rows

    def upsert(self, frame: DataFrame, key: Sequence[str], mark: TransactionId) -> tuple[int, int]:
        """Merge the last change of each key into the table; returns the number of changes and of keys."""
        last = last_changes(frame, key).persist()
        try:
            kept, rows = last.agg(F.count("*"), F.coalesce(F.sum(_CHANGES), F.lit(0))).first() or (0, 0)
            if kept:
                self._merge(last, key, mark)
            return int(rows), int(kept)
        finally:
            last.unpersist()

    @contextmanager
    def _unless_fenced(self, mark: TransactionId) -> Iterator[None]:
        """Fail as fenced when Delta finds that the same batch has been committed meanwhile."""
        try:
            yield
        except (Py4JJavaError, PySparkException) as problem:
            if "DELTA_CONCURRENT_TRANSACTION" not in str(problem):
                raise
            raise HeadraceError(
                "FENCED",
                f"Delta table {self.log.path!r}: another driver has written batch {mark.version} at the same time; "
                "this one has lost its lease and writes nothing. Stop it.",
            ) from None

    def _merge(self, last: DataFrame, key: Sequence[str], mark: TransactionId) -> None:
        view = f"headrace_{uuid.uuid4().hex}"
        names = [name for name in last.columns if name not in (CHANGE, _CHANGES)]
        same = " AND ".join(f"target.{quoted(name)} <=> source.{quoted(name)}" for name in key)
        gone = f"source.{quoted(CHANGE)} IN ('{DELETE}', '{UPDATE_BEFORE}')" if CHANGE in last.columns else "false"
        spark = last.sparkSession
        last.createTempView(view)
        try:
            marked = _settings(spark, {APPLICATION: mark.application, VERSION: str(mark.version)})
            with _MERGING, marked, self._unless_fenced(mark):
                spark.sql(
                    f"MERGE INTO delta.{quoted(self.log.path)} AS target USING {view} AS source ON {same} "
                    f"WHEN MATCHED AND {gone} THEN DELETE "
                    f"WHEN MATCHED THEN UPDATE SET {_assigned(names)} "
                    f"WHEN NOT MATCHED AND NOT coalesce({gone}, false) THEN "
                    f"INSERT ({', '.join(map(quoted, names))}) "
                    f"VALUES ({', '.join(f'source.{quoted(name)}' for name in names)})"
                )
        finally:
            spark.catalog.dropTempView(view)


def last_changes(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """The last row of each key, with the number of its rows; rows of one key are in order in one partition."""
    # Column names may contain dots.
    keys = [F.col(quoted(name)) for name in key]
    ordered = frame.withColumn(_ORDER, F.monotonically_increasing_id())
    newest_first = Window.partitionBy(*keys).orderBy(F.col(_ORDER).desc())
    counted = ordered.withColumn(_LAST, F.row_number().over(newest_first)).withColumn(
        _CHANGES, F.count("*").over(Window.partitionBy(*keys))
    )
    return counted.where(F.col(_LAST) == 1).drop(_LAST, _ORDER)


def quoted(name: str) -> str:
    """A quoted identifier in SQL text.

    >>> quoted("a `b`")
    '`a ``b```'
    """
    return "`" + name.replace("`", "``") + "`"


def _assigned(names: Sequence[str]) -> str:
    return ", ".join(f"target.{quoted(name)} = source.{quoted(name)}" for name in names)


@contextmanager
def _settings(spark: SparkSession, chosen: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for the length of the block."""
    before = {name: spark.conf.get(name, None) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


@dataclass(frozen=True, slots=True, repr=False)
class DeltaTable:
    """The newest version of a Delta table, read by the Spark session that runs the pipeline."""

    path: str

    def columns(self) -> Mapping[str, pl.DataType]:
        """The table's columns now."""
        log = DeltaLog(self._spark(), self.path)
        if not log.exists():
            raise HeadraceError(
                "TABLE_MISSING", f"there is no Delta table at {self.path!r}. Create it before the start."
            )
        return polars_schema(log.schema())

    def read(self) -> pl.DataFrame:
        """All rows of the newest version."""
        columns = self.columns()
        rows = pl.from_arrow(self._spark().read.format("delta").load(self.path).toArrow())
        assert isinstance(rows, pl.DataFrame)
        return fitted(rows, columns, table=f"small table {self.path!r}")

    def _spark(self) -> SparkSession:
        from pyspark.sql import SparkSession

        return SparkSession.active()

    def __repr__(self) -> str:
        return f"hr.delta_table({self.path!r})"


@stable
def delta_table(path: str | os.PathLike[str]) -> DeltaTable:
    """A Delta table as a small table, for ``hr.broadcast_join``.

    >>> delta_table("s3a://lake/rates")
    hr.delta_table('s3a://lake/rates')
    """
    return DeltaTable(table_place(path))
