"""``hr.source``: any stream of Spark as a source. Spark reads it in a query of its own, which hands over each batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace.checkpoint.storage import Storage
from headrace.connectors.base.enumerator import NotYet, Planned
from headrace.connectors.base.source import Gate, RowsReader, add_source
from headrace.errors import DefinitionError, HeadraceError
from headrace.operators.unsupported_operations import UnsupportedOperations
from headrace.schemas import polars_schema
from headrace.stability import stable

PUMP = "pump"
"""The folder of a flow for the checkpoints of Spark's queries."""
COLUMNS_OF_ITS_OWN = "columns that the stream brings, as offset of Kafka or _metadata.file_path of files"


@stable
def source(frame: DataFrame, *, name: str) -> DataFrame:
    """The rows of any ``spark.readStream`` frame (Kinesis, Pulsar, Iceberg, a source of your own), each once.

    Spark plans and repeats its batches by a checkpoint of its own inside the flow's folder. What only Spark knows is
    missing: the source has one watermark as a whole, and nobody can tell how many rows wait.

    >>> import headrace as hr
    >>> @hr.pipeline
    ... def ticks(spark):
    ...     rate = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    ...     hr.write("ticks", hr.source(rate, name="rate"), hr.to_console())
    """
    if not frame.isStreaming:
        raise DefinitionError(
            "NOT_A_STREAM",
            f"source {name!r}: the frame is a table and not a stream, so it ends. Use hr.over(frame, step), or "
            "pipeline.backfill(...).",
        )
    # Operators that see many rows are Spark's business here: its query knows them, and repeats them exactly.
    UnsupportedOperations(f"source {name!r}", lambda _: False, COLUMNS_OF_ITS_OWN).check(frame)
    columns = tuple(polars_schema(frame.schema))
    fingerprint = {"kind": "stream", "schema": frame.schema.simpleString()}
    gate = Gate(name, RowsReader(name, columns), None)

    def pump(storage: Storage) -> Pump:
        return Pump(name, frame, storage)

    return add_source(frame.sparkSession, gate, pump, frame.schema, fingerprint, given=frame.schema, queried=True)


class Pump:
    """Runs a query of Spark and hands its batches to the loop. A position is the query and Spark's number of its batch.

    Spark commits a batch when ours, which holds its rows, is concluded; a batch that was concluded before a crash is
    skipped when Spark brings it again. Spark's checkpoint and our log must tell one history.
    """

    def __init__(self, name: str, frame: DataFrame, storage: Storage) -> None:
        self.place = f"Spark's stream {name!r}"
        self._frame = frame
        self._storage = storage
        self._folder = f"{PUMP}/{name}"
        self._query: StreamingQuery | None = None
        self._ends = self._closed = False
        self._resumes = self._brought = False
        self._concluded = -1
        self._offered: tuple[int, DataFrame] | None = None
        self._changed = threading.Condition()

    def initial(self) -> dict[str, Any]:
        return {"query": None, "batch": -1}

    def stop_at_newest(self) -> None:
        self.close()
        self._ends = self._resumes = True
        self._brought = False

    def plan(self, since: dict[str, Any], *, most: int | None) -> Planned:
        """The batch that Spark offers, if any; a run over what is there waits for it."""
        query = self._query_behind(since, since)
        offered = self._next(query, since)
        if offered is not None:
            return Planned({"query": query.id, "batch": offered[0]})
        if not self._ends:
            return Planned(since)
        if query.isActive:
            raise NotYet
        if self._resumes and self._brought:
            # The first query over what is there may end with a batch that was begun before, and look no further.
            self._resumes, self._query = False, None
            raise NotYet
        return Planned(since)

    def frame(self, since: dict[str, Any], until: dict[str, Any]) -> DataFrame:
        offered = self._next(self._query_behind(since, until), since)
        if offered is None:
            raise NotYet
        return offered[1]

    def was_away(self, failure: BaseException) -> bool:
        return False

    @property
    def calls(self) -> bool:
        return self._offered is not None or (self._query is not None and not self._query.isActive)

    def conclude(self, until: dict[str, Any]) -> None:
        with self._changed:
            self._concluded = until["batch"]
            if self._offered is not None and self._offered[0] == self._concluded:
                self._offered = None
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the query; Spark brings a batch that is not concluded again."""
        query, self._query = self._query, None
        if query is not None:
            with self._unlogged():
                with self._changed:
                    self._closed = True
                    self._changed.notify_all()
                query.stop()
        self._offered, self._closed = None, False

    @contextmanager
    def _unlogged(self) -> Iterator[None]:
        """While a query is stopped in the middle of a batch, which Spark would log as an error."""
        jvm: Any = self._frame.sparkSession.sparkContext._jvm
        log4j, name = jvm.org.apache.logging.log4j, "org.apache.spark.sql.execution.streaming"
        before = log4j.LogManager.getLogger(name).getLevel()
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
        try:
            yield
        finally:
            log4j.core.config.Configurator.setLevel(name, before)

    def _query_behind(self, since: dict[str, Any], known: dict[str, Any]) -> StreamingQuery:
        """The query, started if need be: its checkpoint has begun the last batch we know, and done no other."""
        if self._query is None:
            begun, done = (self._newest(log) for log in ("offsets", "commits"))
            if done > since["batch"]:
                raise self._does_not_fit(f"batch {done} is done", known)
            if begun < known["batch"]:
                last = "no batch has begun" if begun < 0 else f"batch {begun} was the last to begin"
                raise self._does_not_fit(last, known)
            self._concluded = since["batch"]
            self._query = self._started()
            if known["query"] not in (None, self._query.id):
                raise self._does_not_fit(f"its query is {self._query.id}", known)
        return self._query

    def _newest(self, log: str) -> int:
        """The last batch in a log of Spark's checkpoint; -1 when there is none."""
        names = (name.rpartition("/")[2] for name in self._storage.list(f"{self._folder}/{log}"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _does_not_fit(self, found: str, known: dict[str, Any]) -> HeadraceError:
        return HeadraceError(
            "RANGE_CHANGED",
            f"{self.place}: the flow's log knows batch {known['batch']} of Spark's query {known['query']}, and in "
            f"Spark's checkpoint '{self._storage}/{self._folder}' {found}: rows would be missing or come twice. "
            "Restore the whole folder of the flow from one copy, or start with a new checkpoint.",
        )

    def _next(self, query: StreamingQuery, since: dict[str, Any]) -> tuple[int, DataFrame] | None:
        """The batch after the last concluded one, if Spark offers it."""
        offered, active = self._offered, query.isActive
        problem: object = query.exception()
        if problem is None and offered is None and not active and not self._ends:
            problem = "its query was stopped"
        if problem is not None:
            raise HeadraceError(
                "SOURCE_FAILED", f"{self.place} has failed: {problem}. Correct it, then start again: no row is lost."
            )
        if offered is not None and offered[0] != since["batch"] + 1:
            raise self._does_not_fit(f"batch {offered[0]} comes next", since)
        return offered

    def _started(self) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(self._hand_over)
        writer = writer.option("checkpointLocation", f"{self._storage}/{self._folder}")
        return (writer.trigger(availableNow=True) if self._ends else writer).start()

    def _hand_over(self, rows: DataFrame, batch: int) -> None:
        """In Spark's thread: offer a batch, and wait until it is concluded."""
        with self._changed:
            self._brought = True
            if batch == self._concluded:
                return
            self._offered = batch, rows
            self._changed.wait_for(lambda: self._concluded == batch or self._closed)
            if self._concluded != batch:
                raise HeadraceError("FLOW_STOPPED", f"batch {batch} of {self.place} is left for the next start.")
