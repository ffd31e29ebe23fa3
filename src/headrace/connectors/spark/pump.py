"""``hr.source``: any stream of Spark as a source. Spark reads it in a query of its own, which hands over each batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.storage import Storage
from headrace.connectors.base.enumerator import Planned
from headrace.connectors.base.source import Gate, RowsReader, add_frame_source
from headrace.errors import DefinitionError, HeadraceError
from headrace.operators.unsupported_operations import UnsupportedOperations
from headrace.schemas import polars_schema
from headrace.stability import stable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

PUMP = "pump"
"""The folder of a flow for the checkpoints of Spark's queries."""
KIND = "stream"
COLUMNS_OF_ITS_OWN = "columns that the stream brings, as offset of Kafka or _metadata.file_path of files"
LOOK_SECONDS = 0.05


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
    # Operators that see many rows are Spark's business here: its query knows them, and repeats them exactly.
    UnsupportedOperations(f"source {name!r}", lambda _: False, COLUMNS_OF_ITS_OWN).check(frame)
        )
    columns = tuple(polars_schema(frame.schema))
    fingerprint = {"kind": KIND, "schema": frame.schema.simpleString()}
    gate = Gate(name, RowsReader(name, columns), None)

    def pump(storage: Storage) -> Pump:
        return Pump(name, frame, f"{storage}/{PUMP}/{name}")

    return add_frame_source(frame.sparkSession, gate, frame.schema, pump, frame.schema, fingerprint)


class Pump:
    """Runs a query of Spark and hands its batches to the loop. A position is the number of Spark's last batch.

    Spark commits a batch when ours, which holds its rows, is concluded; a batch that was concluded before a crash is
    passed over when Spark brings it again.
    """

    def __init__(self, name: str, frame: DataFrame, checkpoint: str) -> None:
        self.place = f"Spark's stream {name!r}"
        self._name = name
        self._frame = frame
        self._checkpoint = checkpoint
        self._query: StreamingQuery | None = None
        self._ends = self._closed = False
        self._resumes = self._brought = False
        self._concluded = -1
        self._offered: tuple[int, DataFrame] | None = None
        self._changed = threading.Condition()

    def initial(self) -> dict[str, int]:
        return {"batch": -1}

    def stop_at_newest(self) -> None:
        self.close()
        self._ends = self._resumes = True
        self._brought = False

    def plan(self, since: dict[str, int], *, most: int | None) -> Planned:
        """The batch that Spark offers, if it does; in a run over what is there it is waited for."""
        offered = self._next(since["batch"], wait=self._ends)
        return Planned(since if offered is None else {"batch": offered[0]})

    def frame(self, since: dict[str, int], until: dict[str, int]) -> DataFrame:
        offered = self._next(since["batch"], wait=True)
        if offered is None or offered[0] != until["batch"]:
            found = "none any more" if offered is None else f"batch {offered[0]}"
            raise HeadraceError(
                "RANGE_CHANGED",
                f"{self.place}: the batch to be run again needs Spark's batch {until['batch']}, and Spark has {found}. "
                f"Its checkpoint {self._checkpoint!r} was changed: restore the flow's folder from one copy.",
            )
        return offered[1]

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

    def _next(self, concluded: int, *, wait: bool) -> tuple[int, DataFrame] | None:
        """The batch behind the last concluded one, once Spark offers it."""
        with self._changed:
            self._concluded = concluded
            if self._offered is not None and self._offered[0] <= concluded:
                self._offered = None
            self._changed.notify_all()
        if self._query is None:
            self._query = self._started()
        query = self._query
        with self._changed:
            while wait and self._offered is None and query.isActive:
                self._changed.wait(LOOK_SECONDS)
        problem = query.exception()
        if problem is not None:
            raise HeadraceError(
                "SOURCE_FAILED", f"{self.place} has failed: {problem}. Correct it, then start again: no row is lost."
            )
        if self._resumes and self._brought and self._offered is None and not query.isActive:
            # The first query over what is there may end with a batch that was begun before, and look no further.
            self._resumes, self._query = False, None
            return self._next(concluded, wait=wait)
        return self._offered

    def _started(self) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(self._hand_over).option("checkpointLocation", self._checkpoint)
        return (writer.trigger(availableNow=True) if self._ends else writer).start()

    def _hand_over(self, rows: DataFrame, batch: int) -> None:
        """In Spark's thread: offer a batch, and wait until it is concluded."""
        with self._changed:
            self._brought = True
            if batch <= self._concluded:
                return
            self._offered = batch, rows
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._concluded >= batch or self._closed)
            if self._concluded < batch:
                raise HeadraceError("FLOW_STOPPED", f"batch {batch} of {self.place} is left for the next start.")
