"""A source in a pipeline: what finds new rows, the tasks that read them, the gate that judges them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, TimestampType

from headrace.checkpoint.storage import Storage
from headrace.connectors.base.decoding import POSITION, Columns, Decoded, first, readable
from headrace.connectors.base.enumerator import BoundedEnumerator, FrameEnumerator, SplitEnumerator
from headrace.errors import DefinitionError
from headrace.event_time.strategy import TimeStrategy, tagged
from headrace.graph import Origin, SourceNode, active_graph
from headrace.nodes import NodeId
from headrace.reports import SourceReport
from headrace.schemas import MOMENT, from_arrow, polars_schema
from headrace.wheel.side_rows import DEAD_LETTERS, dead_letters, write_side_rows
from headrace.wheel.spark import mapped
from headrace.wheel.task import Task, current_task

LANDING = "landing"
"""The folder of a checkpoint for what feeds bring."""
SPLIT_LEAF, SPLIT_TASKS = -(2**40), 2**20
"""The first number marks a plan's leaf as a source's; the leaf's number modulo the second is that of a task."""
ROW_POSITION = "_position"
"""A column that a schema may declare: where a row came from, ``<topic>/<partition>:<offset>`` or ``<file>:<line>``."""


class Reader(Protocol):
    """Turns what a task is given (splits, or rows that Spark has read) into decoded rows."""

    def read(self, given: Any, task: Task) -> Iterator[Decoded]: ...


@dataclass(slots=True)
class RowsReader:
    """Takes rows as Spark read them: they have their types, so only their time can make them dead letters."""

    origin: str
    columns: tuple[str, ...]
    read_before: int = 0
    """Rows that the task has read so far; every task has its own reader."""

    def read(self, given: pl.DataFrame, task: Task) -> Iterator[Decoded]:
        first, self.read_before = self.read_before, self.read_before + given.height
        positions = pl.int_range(first, self.read_before, eager=True).alias(POSITION)
        origin = f"{self.origin} batch {task.record.batch} task {task.partition}"
        yield Decoded(given.select(*self.columns, positions), origin=origin, arrived=task.record.clock)


@dataclass(frozen=True, slots=True)
class Gate:
    """Checks the rows of one source."""

    source: str
    reader: Reader
    time: TimeStrategy | None
    adds_position: bool = False
    """Whether rows have a column that says where they came from."""
    ingestion_reader: Reader | None = None
    """The reader for ingestion time, where each row's arrival time costs something extra."""
    first_rows: int | None = None
    """How many rows a task reads in a preview; None for all."""

    def timed(self, time: TimeStrategy) -> Gate:
        reader = self.ingestion_reader if time.kind == "ingestion" else None
        return replace(self, time=time, reader=reader or self.reader)

    def read_splits(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
        """In a task of a source that tasks read: the rows that pass."""
        splits = task.splits.get(self.source, ())
        numbers = [number % SPLIT_TASKS for batch in batches for number in batch.column(0).to_pylist()]
        given = (splits[number] for number in numbers if number < len(splits))
        number = numbers[0] if numbers else None
        return self.admit((chunk for each in given for chunk in self.reader.read(each, task)), task, number)

    def read_rows(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
        """In a task of a source that Spark reads: the rows that pass."""
        return self.admit((chunk for batch in batches for chunk in self.reader.read(from_arrow(batch), task)), task)

    def admit(self, chunks: Iterable[Decoded], task: Task, number: int | None = None) -> Iterator[pl.DataFrame]:
        """Pass good rows on chunk by chunk; at the end report counts, dead letters and the highest event times.

        A ``number`` says which splits were read, whichever partition of a plan they were read in.
        """
        counts: Counter[str] = Counter()
        highest: dict[str, int] = {}
        dead: list[pl.DataFrame] = []
        for chunk in chunks if self.first_rows is None else first(chunks, self.first_rows):
            rows, refused = (chunk.rows, None) if self.time is None else self._judge(chunk, self.time, task)
            for letters in (chunk.dead, refused):
                if letters is not None and not letters.is_empty():
                    where = {"source": self.source, "origin": chunk.origin}
                    dead.append(dead_letters(letters, **where, batch=task.record.batch, clock=task.record.clock))
            if self.time is not None and not rows.is_empty():
                for partition, newest in _highest(rows, self.time, chunk.partition):
                    highest[partition] = max(newest, highest.get(partition, newest))
            read = chunk.rows.height + chunk.dead.height
            counts.update(read=read, handed_on=rows.height, lost=chunk.lost, skipped=chunk.skipped)
            if self.adds_position:
                place = pl.concat_str(pl.lit(f"{chunk.origin}:"), pl.col(POSITION).cast(pl.String))
                rows = rows.with_columns(place.alias(ROW_POSITION))
            if not rows.is_empty():
                yield rows.drop(POSITION)
        files = write_side_rows(task, self.source, DEAD_LETTERS, dead)
        task.report(
            NodeId("source", self.source),
            SourceReport(
                **counts,
                dead=sum(rows for _, rows in files),
                highest=highest,
                side={DEAD_LETTERS: files},
                readings=frozenset() if number is None else frozenset({(task.stage, task.partition)}),
            ),
            part=number,
        )

    def _judge(self, chunk: Decoded, time: TimeStrategy, task: Task) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows with their time, and as dead rows those without one or with one out of bounds."""
        rows = chunk.rows
        if time.kind != "event":
            clock = pl.lit(task.record.clock, pl.Int64)
            arrived = pl.lit(chunk.arrived) if time.kind == "ingestion" else clock
            # What is there has arrived, whatever the time of a file or the clock of a broker says.
            return rows.with_columns(pl.min_horizontal(arrived, clock).cast(MOMENT).alias(time.column)), None
        event_time = pl.col(time.column).cast(pl.Int64)
        reasons = [pl.when(event_time.is_null()).then(pl.lit("NO_EVENT_TIME"))]
        if time.accept.max_future is not None:
            latest = task.record.clock + time.accept.max_future
            reasons.append(pl.when(event_time > latest).then(pl.lit("EVENT_TIME_IN_FUTURE")))
        if time.accept.not_before is not None:
            reasons.append(pl.when(event_time < time.accept.not_before).then(pl.lit("EVENT_TIME_TOO_OLD")))
        reason = rows.select(pl.coalesce(reasons).alias("reason")).to_series()
        if reason.null_count() == rows.height:
            return rows, None
        refused = rows.with_columns(reason).filter(reason.is_not_null())
        found = readable(pl.col(time.column), rows.schema[time.column])
        dead = refused.select(
            pl.col(POSITION).alias("position"),
            "reason",
            pl.format(f"{time.column} = {{}}", found.fill_null("null")).alias("detail"),
            chunk.raw(refused).alias("raw"),
        )
        return rows.filter(reason.is_null()), dead


def _highest(rows: pl.DataFrame, time: TimeStrategy, partition: str) -> Iterable[tuple[str, int]]:
    event_time = pl.col(time.column).cast(pl.Int64).max()
    if time.partition is None:
        return [(partition, rows.select(event_time).item())]
    names = pl.col(time.partition).cast(pl.String).fill_null("null").alias("partition")
    return rows.group_by(names).agg(event_time).rows()


@dataclass(frozen=True, slots=True)
class Source:
    """A source of the active pipeline with its gate."""

    stream: DataFrame
    """The numbers of tasks, or the rows that Spark reads."""
    gate: Gate
    schema: StructType

    def frame(self) -> DataFrame:
        """The source's rows as a DataFrame, registered in the graph."""
        graph, name = active_graph(), self.gate.source
        label, nodes = f"headrace.source.{name}", frozenset({NodeId("source", name)})
        read = self.gate.read_splits if graph.sources[name].placeholder is None else self.gate.read_rows
        origin = Origin(self.stream, read, nodes, f"{label}+", self.timed)
        rows = mapped(self.stream, read, self.schema, partial(current_task, graph.reports), name=label)
        return graph.register_frame(rows, origin)

    def timed(self, strategy: TimeStrategy) -> DataFrame:
        graph = active_graph()
        node = graph.sources[self.gate.source]
        if node.time is not None:
            raise DefinitionError(
                "EVENT_TIME_TWICE",
                f"source {self.gate.source!r} already has {node.time!r}. Read it a second time under another name, or "
                "use one strategy for both.",
            )
        schema = self._with_time(strategy)
        graph.sources[self.gate.source] = replace(node, time=strategy)
        return replace(self, gate=self.gate.timed(strategy), schema=schema).frame()

    def _with_time(self, strategy: TimeStrategy) -> StructType:
        fields = {field.name: field for field in self.schema.fields}
        if strategy.kind == "event":
            for column in (strategy.column, strategy.partition):
                if column is not None and column not in fields:
                    raise DefinitionError(
                        "COLUMN_UNKNOWN",
                        f"source {self.gate.source!r} has no column {column!r}. Existing columns: {', '.join(fields)}.",
                    )
            kind = fields[strategy.column].dataType
            if not isinstance(kind, TimestampType):
                raise DefinitionError(
                    "EVENT_TIME_TYPE",
                    f"source {self.gate.source!r}: event time column {strategy.column!r} is {kind.simpleString()}. "
                    "Declare it as TIMESTAMP.",
                )
        elif strategy.column in fields:
            raise DefinitionError(
                "COLUMN_EXISTS",
                f"source {self.gate.source!r} already has a column {strategy.column!r}. Choose another name, as in "
                f"hr.{strategy.kind}_time('arrived').",
            )
        fields.setdefault(strategy.column, StructField(strategy.column, TimestampType()))
        return tagged(fields.values(), strategy.column, NodeId("source", self.gate.source))


def add_source(
    spark: SparkSession,
    gate: Gate,
    enumerator: Callable[[Storage], SplitEnumerator | FrameEnumerator],
    schema: StructType,
    fingerprint: Mapping[str, object],
    *,
    given: StructType | None = None,
    **traits: Any,
) -> DataFrame:
    """Add a source to the active pipeline and return its rows; ``traits`` are fields of its node.

    Tasks read it, or Spark does: then its rows of a batch, in the columns ``given``, take the place of an empty frame.
    """
    graph = active_graph()
    if gate.source in graph.bounded:
        rows = _bounded_rows(gate.source, graph.bounded[gate.source], schema)
        table, given = BoundedEnumerator(gate.source, rows), rows.schema
        gate = Gate(gate.source, RowsReader(gate.source, tuple(schema.names)), None)
        enumerator, traits = lambda _: table, {"changes": traits.get("changes", False)}
    if given is None:
        placeholder, tasks = None, spark.sparkContext.defaultParallelism
        stream = spark.range(SPLIT_LEAF, SPLIT_LEAF + tasks, 1, tasks)
    else:
        placeholder = spark.createDataFrame([], given)
        stream = placeholder if graph.first_rows is None else placeholder.limit(graph.first_rows)
    gate = replace(gate, first_rows=graph.first_rows)
    graph.add_source(SourceNode(gate.source, fingerprint, enumerator, placeholder, **traits))
    return Source(stream, gate, schema).frame()


def _bounded_rows(source: str, given: DataFrame, schema: StructType) -> DataFrame:
    """The rows of a table that takes the place of a source."""
    missing = [name for name in schema.names if name not in given.columns]
    if missing:
        raise DefinitionError(
            "COLUMN_UNKNOWN",
            f"the table for source {source!r} has no column {missing[0]!r}. Its columns: {', '.join(given.columns)}.",
        )
    return given.select([given[field.name].cast(field.dataType).alias(field.name) for field in schema.fields])


def declared_columns(schema: StructType, *, without: Collection[str] = ()) -> Columns:
    """The columns of a schema that a decoder reads: all but those that the source fills itself."""
    types = {name: kind for name, kind in polars_schema(schema).items() if name not in without}
    return Columns(types, frozenset(field.name for field in schema.fields if not field.nullable))


def source_name(given: str | None, place: str) -> str:
    """The name of a source: the given one, or one made of the topic or folder that it reads.

    >>> source_name(None, "shop.payments")
    'shop_payments'
    """
    return given or re.sub(r"\W", "_", place)
