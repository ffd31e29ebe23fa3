"""The log of a Delta table: its columns, its version, its settings and the marks of its writers."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from headrace.errors import HeadraceError
from headrace.storage import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KNOWN_BY = "io/delta/sql/DeltaSparkSessionExtension.class"
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of the table at a path, read through the session's own Delta."""

    spark: SparkSession
    path: str

    @property
    def java(self) -> Any:
        """Delta's own log object, which Delta caches."""
        require_delta(self.spark)
        log: Any = self.jvm.org.apache.spark.sql.delta.DeltaLog
        return log.forTable(self.spark._jsparkSession, self.path)

    @property
    def jvm(self) -> Any:
        """Spark's Java side."""
        return self.spark.sparkContext._jvm

    def exists(self) -> bool:
        """Whether there is a table."""
        self._snapshot()
        return bool(self.java.tableExists())

    def version(self) -> int:
        """The newest version; -1 where there is no table."""
        return int(self._snapshot().version())

    def schema(self) -> StructType:
        """The table's columns."""
        return StructType.fromJson(json.loads(self._snapshot().metadata().schemaString()))

    def partition_columns(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by."""
        return tuple(listed(self._snapshot().metadata().partitionColumns()))

    def setting(self, name: str) -> str | None:
        """A table property."""
        found = self._snapshot().metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def mark(self, application: str) -> int | None:
        """The last transaction version that an application wrote."""
        found = self._snapshot().transactions().get(application)
        return int(found.get()) if found.isDefined() else None

    def _snapshot(self) -> Any:
        nothing = self.jvm.scala.Option.empty()
        return self.java.update(False, nothing, nothing)


def require_delta(spark: SparkSession) -> None:
    """Fail when the session has no Delta."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if loader.getResource(_KNOWN_BY) is None or _EXTENSION not in extensions:
        raise HeadraceError(
            "CONNECTOR_MISSING",
            "this Spark session cannot read or write Delta tables. Start the process with "
            'hr.spark_session(connectors=("delta",)), or put delta-spark and its settings on your cluster.',
        )


def table_place(path: str | os.PathLike[str]) -> str:
    """A table's path, absolute if local: Spark's process may have another working folder than this one.

    >>> table_place("s3a://lake/spend/")
    's3a://lake/spend'
    """
    given = os.fspath(path)
    local = local_path(given)
    return given.rstrip("/") if local is None else str(local.absolute())


def listed(sequence: Any) -> list[Any]:
    """A Scala sequence as a list."""
    iterator, found = sequence.iterator(), []
    while iterator.hasNext():
        found.append(iterator.next())
    return found
