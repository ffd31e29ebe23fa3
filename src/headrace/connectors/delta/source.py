"""``hr.read_delta``: the rows of a Delta table, or its change feed as a changelog, each once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as SparkFrame
from pyspark.sql.types import StructType

from headrace.changelog import CHANGE, CHANGELOG, UPDATE_AFTER, UPDATE_BEFORE
from headrace.changelog import POSITION as CHANGE_POSITION
from headrace.connectors.base.decoding import POSITION, Decoded
from headrace.connectors.base.enumerator import Planned
from headrace.connectors.base.sink import Unreachable
from headrace.connectors.base.source import Gate, add_source, source_name
from headrace.connectors.delta.table import DeltaLog, table_place, without_metadata
from headrace.errors import DefinitionError, HeadraceError
from headrace.event_time.tracker import WHOLE
from headrace.plans import scala_map
from headrace.schemas import polars_schema
from headrace.stability import stable
from headrace.wheel.task import Task

Start = Literal["earliest", "latest"] | int
COMMITTED, VERSION = "_commit_timestamp", "_commit_version"
FEED = "delta.enableChangeDataFeed"
_FILE, _KIND = "__file", "_change_type"
_WORDS = {"update_preimage": UPDATE_BEFORE, "update_postimage": UPDATE_AFTER}
_DIGITS = 20
_IO = re.compile(r"\b(?:java\.(?:io|net|nio\.file)\.\w+Exception|\w+\.\w*IOException)\b")
_ADVICE = {
    "SOURCE_FAILED": "it cannot be read. Correct what Delta says, then start again: no row is lost.",
    "RANGE_CHANGED": "the versions that a batch reads cannot be read any more, and if the batch runs again, a sink may "
    "have its rows already. Restore the table's files, or start with a new checkpoint.",
}
_NOT_APPENDED = ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE")


@dataclass(slots=True)
class DeltaReader:
    """Takes rows as Spark read them: they have their types, so only their time can make them dead letters."""

    columns: tuple[str, ...]
    read_before: int = 0
    """Rows that the task has read so far; every task has its own reader."""

    def read(self, given: pl.DataFrame, task: Task) -> Iterator[Decoded]:
        for chunk in given.partition_by(_FILE, maintain_order=True):
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
    table = DeltaStream(DeltaLog(spark, table_place(location)), changes, files_per_batch)
    rows = _columns(table, start)
    given = _shaped(spark.createDataFrame([], rows), changes).schema
    struct = without_metadata(StructType([field for field in given.fields if field.name != _FILE]))
    gate = Gate(source_name(name, Path(location.rstrip("/")).name), DeltaReader(tuple(polars_schema(struct))), None)
    return add_source(
        spark,
        gate,
        lambda _: DeltaEnumerator(table, start),
        struct,
        {"kind": "delta", "path": location, "changes": changes},
        given=given,
        changes=changes,
    )


@dataclass(frozen=True, slots=True)
class DeltaStream:
    """A table as Delta's own streaming source reads it."""

    log: DeltaLog
    changes: bool
    files_per_batch: int | None

    def open(self, version: int | None) -> Any:
        """A source that begins with a version, or with all that is in the table."""
        jvm, spark = self.log.jvm, self.log.spark
        options = {"path": self.log.path}
        if self.changes:
            options["readChangeFeed"] = "true"
        if version is not None:
            options["startingVersion"] = str(version)
        if self.files_per_batch is not None:
            options["maxFilesPerTrigger"] = str(self.files_per_batch)
        given = scala_map(jvm, options.items())
        source = jvm.org.apache.spark.sql.delta.sources.DeltaDataSource()
        context = spark._jsparkSession.sqlContext()
        return source.createSource(context, self.log.path, jvm.scala.Option.empty(), "delta", given)


class DeltaEnumerator:
    """Finds new rows by Delta's own offsets. A position is such an offset, or the version to begin with."""

    def __init__(self, table: DeltaStream, start: Start) -> None:
        self._table = table
        self._start = start
        self._opened: Any = None
        self._ends = False

    @property
    def place(self) -> str:
        return f"Delta table {self._table.log.path}"

    def initial(self) -> dict[str, Any]:
        if self._start == "earliest":
            return {"version": None, "offset": None}
        with _failures(self._table.log, "SOURCE_FAILED"):
            return {"version": self._newest() + 1 if self._start == "latest" else self._start, "offset": None}

    def stop_at_newest(self) -> None:
        # A batch that ran again may have opened the table already.
        self._ends, self._opened = True, None

    def plan(self, since: dict[str, Any], *, most: int | None) -> Planned:
        with _failures(self._table.log, "SOURCE_FAILED"):
            return self._planned(since)

    def _planned(self, since: dict[str, Any]) -> Planned:
        version = since["version"]
        if version is not None and version > self._newest():
            return Planned(since)
        newest = self._offset_after(since)
        if newest == since["offset"]:
            return Planned(since)
        until = {**since, "offset": newest}
        return Planned(until, {WHOLE: 1} if self._offset_after(until) != newest else {})

    def frame(self, since: dict[str, Any], until: dict[str, Any]) -> DataFrame:
        spark, some = self._table.log.spark, self._table.log.jvm.scala.Option.apply
        with _failures(self._table.log, "RANGE_CHANGED"):
            rows = self._source(until).getBatch(some(self._offset(since)), self._offset(until))
        return _shaped(SparkFrame(rows, spark), self._table.changes)

    def was_away(self, failure: BaseException) -> bool:
        self._opened = None
        with _failures(self._table.log, "SOURCE_FAILED"):
            self._newest()
        return "[FAILED_READ_FILE" in str(failure)

    def _source(self, position: dict[str, Any]) -> Any:
        if self._opened is None:
            opened = self._table.open(position["version"])
            if self._ends:
                opened.prepareForTriggerAvailableNow()
            self._opened = opened
        return self._opened

    def _newest(self) -> int:
        """The newest version. Delta takes a table that is away for one that was never written."""
        newest = self._table.log.version()
        if newest < 0:
            raise Unreachable(f"there is no Delta table at {self._table.log.path!r} now")
        return newest

    def _offset_after(self, position: dict[str, Any]) -> Any:
        """The offset up to which the next batch would read."""
        source = self._source(position)
        found = source.latestOffset(self._offset(position), source.getDefaultReadLimit())
        return position["offset"] if found is None else json.loads(found.json())

    def _offset(self, position: dict[str, Any]) -> Any:
        if position["offset"] is None:
            return None
        streaming = self._table.log.jvm.org.apache.spark.sql.execution.streaming
        return streaming.runtime.SerializedOffset(json.dumps(position["offset"]))


@contextmanager
def _failures(log: DeltaLog, id: str) -> Iterator[None]:
    """What Spark raises as our error with this id; ``Unreachable`` where the table cannot be read now."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        said = str(error).partition("\n\tat ")[0].rpartition("\n: ")[2]
        problem = not_append_only(error, log.path)
        # What Delta explains itself is no outage, unless there is no table.
        is_io = _IO.search(str(error)) is not None and "[DELTA_" not in said
        if problem is None and (is_io or _is_away(log)):
            raise Unreachable(said.partition("\n")[0]) from None
        raise problem or HeadraceError(id, f"Delta table {log.path!r}: {_ADVICE[id]} Delta says: {said}") from error


def _is_away(log: DeltaLog) -> bool:
    """Whether there is no table now; one whose log Delta cannot make sense of is there."""
    try:
        return log.version() < 0
    except (Py4JJavaError, PySparkException) as error:
        return "[DELTA_" not in str(error)


def _shaped(table: DataFrame, changes: bool) -> DataFrame:
    """Rows of a table with their file, changes as a changelog."""
    if changes:
        position = F.lpad(F.col(VERSION).cast("string"), _DIGITS, "0")
        table = table.withColumnRenamed(_KIND, CHANGE).withColumn(CHANGE_POSITION, position)
    return table.withColumn(_FILE, F.input_file_name())


def _columns(table: DeltaStream, start: Start) -> StructType:
    """The columns of a table that can be read as it is to be."""
    log = table.log
    try:
        with _failures(log, "SOURCE_FAILED"):
            _check(log, table.changes, start)
            return StructType.fromJson(json.loads(table.open(None).schema().json()))
    except Unreachable as problem:
        raise HeadraceError(
            "SOURCE_UNREACHABLE",
            f"Delta table {log.path!r} cannot be read: {problem}. Bring it back, or correct the path.",
        ) from None


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
    taken = [name for name in CHANGELOG if name in log.schema().names]
    if changes and taken:
        raise DefinitionError(
            "COLUMN_EXISTS", f"Delta table {log.path!r} has a column {taken[0]!r} of its own. Rename it."
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
