"""Delta tables: their log, commits of batches, and the newest version as a small table."""

from __future__ import annotations

import json
import os
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from headrace.changelog import CHANGE, DELETE, UPDATE_BEFORE
from headrace.connectors.base.conversion import fitted
from headrace.connectors.base.delivery import quoted
from headrace.connectors.base.sink import BatchIdentity, Mark, WriterBatch, already_written
from headrace.errors import HeadraceError
from headrace.event_time.record import MarkedBatch
from headrace.plans import elements, scala_object
from headrace.schemas import polars_schema
from headrace.stability import stable
from headrace.storage import local_path

APPLICATION, VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_TOKENS = 2**20
_LAST, _CHANGES, _ORDER = "__last", "__changes", "__order"
_KNOWN_BY = "io/delta/sql/DeltaSparkSessionExtension.class"
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of the table at a path, read through the session's own Delta."""

    spark: SparkSession
    path: str

    @property
    def java(self) -> Any:
        """Delta's own log object, which Delta caches; an error when the session has no Delta."""
        loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        extensions = self.spark.conf.get("spark.sql.extensions", "") or ""
        if loader.getResource(_KNOWN_BY) is None or _EXTENSION not in extensions:
            raise HeadraceError(
                "CONNECTOR_MISSING",
                "this Spark session cannot read or write Delta tables. Start the process with "
                'hr.spark_session(connectors=("delta",)), or put delta-spark and its settings on your cluster.',
            )
        return self.jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.path)

    @property
    def jvm(self) -> Any:
        return self.spark.sparkContext._jvm

    def exists(self) -> bool:
        return self.version() >= 0

    def version(self) -> int:
        """The newest version; -1 where there is no table."""
        return int(self._snapshot().version())

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self._snapshot().metadata().schemaString()))

    def partition_columns(self) -> tuple[str, ...]:
        return tuple(elements(self._snapshot().metadata().partitionColumns()))

    def setting(self, name: str) -> str | None:
        found = self._snapshot().metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def last_versions(self, *applications: str) -> list[int]:
        """The version in the last transaction identifier that each application wrote, -1 if it wrote none."""
        written = self._snapshot().transactions()
        found = [written.get(each) for each in applications]
        return [int(version.get()) if version.isDefined() else -1 for version in found]

    def _snapshot(self) -> Any:
        nothing = self.jvm.scala.Option.empty()
        return self.java.update(False, nothing, nothing)


def table_place(path: str | os.PathLike[str]) -> str:
    """A table's path, absolute if local: Spark's process may have another working folder than this one.

    >>> table_place("s3a://lake/spend/")
    's3a://lake/spend'
    """
    given = os.fspath(path)
    local = local_path(given)
    return given.rstrip("/") if local is None else str(local.absolute())


def without_metadata(columns: StructType) -> StructType:
    """Columns without Headrace's metadata, which names the event time of the pipeline that wrote them."""
    return StructType([StructField(field.name, field.dataType, field.nullable) for field in columns.fields])


@dataclass(frozen=True, slots=True)
class DeltaWriter:
    """Writes a batch to a table as one commit.

    Delta's transaction identifiers are its marks: an application with a version that rises with the batches. A merge
    cannot compare one before it writes, so a batch is begun with a commit of its own, which can.
    """

    log: DeltaLog
    batch: BatchIdentity

    @property
    def application(self) -> str:
        return f"{self.batch.id}.{self.batch.output}.{self.batch.generation}"

    @property
    def beginning(self) -> str:
        """The application whose version says which batch was begun."""
        return f"{self.application}.begun"

    @property
    def version(self) -> int:
        return _version(MarkedBatch(self.batch.batch, self.batch.token))

    def mark(self) -> Mark | None:
        """That of the newest batch, which may only have been begun."""
        return self._mark(self.log.last_versions(self.application, self.beginning))

    def is_written(self) -> bool:
        """Whether the table holds the batch. Fails when its mark is not one that the log expects."""
        return self._finds(self.log.last_versions(self.application, self.beginning))[0]

    def _finds(self, versions: Sequence[int]) -> tuple[bool, bool]:
        """Whether the batch was written and whether it was begun, by the versions of the two applications."""
        part = WriterBatch(self.batch, 0, self.batch.last)
        begun = already_written(part, self._mark(versions), place=f"Delta table {self.log.path!r}")
        return versions[0] == self.version, begun

    def _mark(self, versions: Sequence[int]) -> Mark | None:
        newest = max(versions)
        if newest < 0:
            return None
        # Delta keeps a number only, so the token is in its last digits.
        known = [MarkedBatch(self.batch.batch, self.batch.token), self.batch.last]
        same = [each for each in known if each is not None and _version(each) == newest]
        found = same[0] if same else MarkedBatch(newest // _TOKENS, "another")
        return Mark(0, self.batch.generation, found.number, token=found.token)

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Any, bool]]:
        """A transaction that Delta refuses to commit if a batch is marked meanwhile; whether this one was begun."""
        transaction = self.log.java.startTransaction()
        # To read them is what makes Delta compare them.
        written, begun = self._finds([int(transaction.txnVersion(each)) for each in (self.application, self.beginning)])
        if written:
            raise self._fenced()
        with self._unless_fenced():
            yield transaction, begun

    def create_if_missing(self, columns: StructType, partition_by: Sequence[str]) -> None:
        if not self.log.exists():
            empty = self.log.spark.createDataFrame([], without_metadata(columns))
            empty.write.format("delta").mode("append").partitionBy(*partition_by).save(self.log.path)

    def append(self, frame: DataFrame) -> int:
        """Append the frame's rows, running it once; returns their number. Without rows there is no commit."""
        # Spark's own append would commit an empty batch too; to cache the frame makes an append half as slow again.
        with self._transaction() as (transaction, _):
            files = transaction.writeFiles(frame._jdf)
            rows = sum(int(file.numLogicalRecords().get()) for file in elements(files))
            if rows:
                self._commit(transaction, files, self.application)
        return rows

    def _commit(self, transaction: Any, files: Any, application: str) -> None:
        spark, some = self.log.jvm.org.apache.spark.sql, self.log.jvm.scala.Option.apply
        mark = application, self.version
        written = spark.delta.actions.SetTransaction(*mark, some(time.time_ns() // 1_000_000))
        update = getattr(spark.delta, "DeltaOperations$StreamingUpdate")
        operation = update(spark.streaming.OutputMode.Append(), *mark, some(None))
        transaction.commit(files.appended(written), operation)

    def stored(self, frame: DataFrame) -> DataFrame:
        """The columns that an upserted table has."""
        return frame.drop(CHANGE) if self.batch.changelog else frame

    def upsert(self, frame: DataFrame, key: Sequence[str]) -> tuple[int, int]:
        """Merge the last change of each key into the table; returns the number of changes and of keys."""
        last = _last_changes(frame, key).persist()
        try:
            kept, rows = last.agg(F.count("*"), F.coalesce(F.sum(_CHANGES), F.lit(0))).first() or (0, 0)
            if kept:
                with self._transaction() as (transaction, begun):
                    if not begun:
                        nothing = scala_object(self.log.jvm.scala.collection.immutable, "Nil")
                        self._commit(transaction, nothing, self.beginning)
                self._merge(last, key)
            return int(rows), int(kept)
        finally:
            last.unpersist()

    @contextmanager
    def _unless_fenced(self) -> Iterator[None]:
        """Fail as fenced when Delta finds that the same batch has been committed meanwhile."""
        try:
            yield
        except (Py4JJavaError, PySparkException) as problem:
            if "DELTA_CONCURRENT_TRANSACTION" not in str(problem):
                raise
            raise self._fenced() from None

    def _fenced(self) -> HeadraceError:
        return HeadraceError(
            "FENCED",
            f"Delta table {self.log.path!r}: another driver has written batch {self.batch.batch}. Stop this one.",
        )

    def _merge(self, last: DataFrame, key: Sequence[str]) -> None:
        view = f"headrace_{uuid.uuid4().hex}"
        names = [name for name in self.stored(last).columns if name != _CHANGES]
        assigned = ", ".join(f"target.{quoted(name)} = source.{quoted(name)}" for name in names)
        same = " AND ".join(f"target.{quoted(name)} <=> source.{quoted(name)}" for name in key)
        gone = f"source.{quoted(CHANGE)} IN ('{DELETE}', '{UPDATE_BEFORE}')" if self.batch.changelog else "false"
        # A MERGE takes its mark from the settings of the session, which is the flow's own.
        spark, mark = last.sparkSession, {APPLICATION: self.application, VERSION: str(self.version)}
        last.createTempView(view)
        try:
            for name, value in mark.items():
                spark.conf.set(name, value)
            with self._unless_fenced():
                spark.sql(
                    f"MERGE INTO delta.{quoted(self.log.path)} AS target USING {view} AS source ON {same} "
                    f"WHEN MATCHED AND {gone} THEN DELETE "
                    f"WHEN MATCHED THEN UPDATE SET {assigned} "
                    f"WHEN NOT MATCHED AND NOT coalesce({gone}, false) THEN "
                    f"INSERT ({', '.join(map(quoted, names))}) "
                    f"VALUES ({', '.join(f'source.{quoted(name)}' for name in names)})"
                )
        finally:
            for name in mark:
                spark.conf.unset(name)
            spark.catalog.dropTempView(view)


def _last_changes(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """The last row of each key, with the number of its rows; rows of one key are in order in one partition."""
    # Column names may contain dots.
    columns = F.struct(*(F.col(quoted(name)) for name in frame.columns))
    ordered = frame.withColumn(_ORDER, F.monotonically_increasing_id()).groupBy(*(F.col(quoted(name)) for name in key))
    last = ordered.agg(F.max_by(columns, _ORDER).alias(_LAST), F.count("*").alias(_CHANGES))
    return last.select(f"{_LAST}.*", _CHANGES)


def _version(marked: MarkedBatch) -> int:
    return marked.number * _TOKENS + zlib.crc32(marked.token.encode()) % _TOKENS


@dataclass(frozen=True, slots=True, repr=False)
class DeltaTable:
    """The newest version of a Delta table, read by the Spark session that runs the pipeline."""

    path: str

    def columns(self) -> Mapping[str, pl.DataType]:
        log = DeltaLog(SparkSession.active(), self.path)
        if not log.exists():
            raise HeadraceError(
                "TABLE_MISSING", f"there is no Delta table at {self.path!r}. Create it before the start."
            )
        return polars_schema(log.schema())

    def read(self) -> pl.DataFrame:
        columns = self.columns()
        rows = pl.from_arrow(SparkSession.active().read.format("delta").load(self.path).toArrow())
        assert isinstance(rows, pl.DataFrame)
        return fitted(rows, columns, table=f"small table {self.path!r}")

    def __repr__(self) -> str:
        return f"hr.delta_table({self.path!r})"


@stable
def delta_table(path: str | os.PathLike[str]) -> DeltaTable:
    """A Delta table as a small table, for ``hr.broadcast_join``.

    >>> delta_table("s3a://lake/rates")
    hr.delta_table('s3a://lake/rates')
    """
    return DeltaTable(table_place(path))
