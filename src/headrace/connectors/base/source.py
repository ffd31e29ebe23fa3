"""A source in a pipeline: the stream that Spark hands to tasks, the gate that judges rows, ticks and row caps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType, TimestampType

from headrace.connectors.base.decoding import POSITION, Columns, Decoded, readable
from headrace.errors import DefinitionError
from headrace.event_time.strategy import TimeStrategy
from headrace.graph import Origin, SourceNode, active_graph, tagged
from headrace.nodes import NodeId
from headrace.reports import SourceReport
from headrace.schemas import MOMENT, from_arrow, polars_schema
from headrace.storage import write_durably
from headrace.wheel.side_rows import DEAD_LETTERS, dead_letters, write_side_rows
from headrace.wheel.spark import mapped
from headrace.wheel.task import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CAPS, LANDING, TICKS = "caps", "landing", "ticks"
"""Folders in a checkpoint that sources use."""
FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
ROW_POSITION = "_position"
"""A column that a schema may declare: where a row came from, ``<topic>/<partition>:<offset>`` or ``<file>:<line>``."""


class Reader(Protocol):
    """Turns what Spark hands to a task (file names, positions) into rows."""

    def read(self, raw: pl.DataFrame, task: Task) -> Iterator[Decoded]: ...


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

    def timed(self, time: TimeStrategy) -> Gate:
        reader = self.ingestion_reader if time.kind == "ingestion" else None
        return replace(self, time=time, reader=reader or self.reader)

    def read(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
        """In a Spark task: the rows that pass."""
        return self.admit((chunk for batch in batches for chunk in self.reader.read(from_arrow(batch), task)), task)

    def admit(self, chunks: Iterable[Decoded], task: Task) -> Iterator[pl.DataFrame]:
        """Pass good rows on chunk by chunk; at the end report counts, dead letters and the highest event times."""
        counts: Counter[str] = Counter()
        origins, unread, highest = set[str](), dict[str, int](), dict[str, int]()
        dead: list[pl.DataFrame] = []
        for chunk in chunks:
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
            origins.add(chunk.origin)
            unread[chunk.partition] = chunk.unread
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
                origins=len(origins),
                unread=unread,
                highest=highest,
                side={DEAD_LETTERS: files},
            ),
        )

    def _judge(self, chunk: Decoded, time: TimeStrategy, task: Task) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows with their time, and as dead rows those without one or with one out of bounds."""
        rows = chunk.rows
        if time.kind != "event":
            moment = chunk.arrived if time.kind == "ingestion" else task.record.clock
            literal = pl.lit(moment, pl.Int64) if isinstance(moment, int) else pl.lit(moment)
            return rows.with_columns(literal.cast(MOMENT).alias(time.column)), None
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
    """What Spark hands to tasks: file names or positions, and ticks without any."""
    gate: Gate
    schema: StructType

    def frame(self) -> DataFrame:
        """The source's rows as a DataFrame, registered in the graph."""
        graph, name = active_graph(), self.gate.source
        label, nodes = f"headrace.source.{name}", frozenset({NodeId("source", name)})
        origin = Origin(self.stream, self.gate.read, nodes, f"{label}+", self.timed)
        rows = mapped(self.stream, self.gate.read, self.schema, graph.reports, name=label)
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
        return Source(self.stream, self.gate.timed(strategy), schema).frame()

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
    gate: Gate, stream: DataFrame, schema: StructType, fingerprint: Mapping[str, object], **traits: Any
) -> DataFrame:
    """Add a source to the active pipeline and return its rows; ``traits`` are further fields of its node.

    The source also gets a stream of ticks, which are null in every column: a flow drops a file into their folder when
    it needs a batch and no row comes.
    """
    graph = active_graph()
    ticks = graph.checkpoint / TICKS / gate.source
    ticks.mkdir(parents=True, exist_ok=True)
    files = stream.sparkSession.readStream.format("binaryFile").schema(FILES).load(str(ticks))
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in stream.schema.fields]
    graph.add_source(SourceNode(gate.source, fingerprint, ticks, **traits))
    return Source(stream.union(files.select(nothing)), gate, schema).frame()


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


def set_cap(folder: Path, flow: str, rows: int) -> None:
    """Let a flow's next batches take at most so many rows; the source reads this small file before each batch."""
    write_durably(folder / flow, str(rows))


def cap_of(folder: Path, flow: str = "[!.]*") -> int | None:
    """The cap of a flow, or the smallest of all flows; None if there is none."""
    return min((int(file.read_text()) for file in folder.glob(flow)), default=None)


def remove_cap(folder: Path, flow: str) -> None:
    """Remove a flow's cap."""
    (folder / flow).unlink(missing_ok=True)
