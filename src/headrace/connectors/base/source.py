"""A source of the pipeline: what Spark lists or counts, and the gate through which tasks read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType, TimestampType

from headrace.connectors.base.gate import Gate
from headrace.errors import DefinitionError
from headrace.event_time.strategy import TimeStrategy
from headrace.graph import SourceNode, active_graph, time_tag
from headrace.node_id import NodeId
from headrace.schemas import arrow_batches
from headrace.wheel.task import current_task

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"


@dataclass(frozen=True, slots=True)
class Source:
    """A source of the active pipeline with its gate."""

    raw: DataFrame
    """What Spark hands to tasks: names or positions of rows, and now and then a tick without any."""
    gate: Gate
    schema: StructType

    @property
    def name(self) -> str:
        """The source's name."""
        return self.gate.source

    @property
    def stream(self) -> DataFrame:
        """What Spark hands to tasks."""
        return self.raw

    @property
    def read(self) -> Any:
        """Rows that pass the gate."""
        return self.gate.read

    @property
    def label(self) -> str:
        """The name under which plans show the source."""
        return f"headrace.source.{self.name}+"

    def frame(self) -> DataFrame:
        """The source's rows as a DataFrame, registered as coming straight from here."""
        graph = active_graph()
        gate, schema, reports = self.gate, self.schema, graph.reports

        def gating(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in gate.read(batches, current_task(reports)):
                yield from arrow_batches(rows, schema)

        gating.__name__ = self.label.rstrip("+")
        return graph.register_frame(self.raw.mapInArrow(gating, schema), self)

    def timed(self, strategy: TimeStrategy) -> DataFrame:
        """The same source with its time declared."""
        graph = active_graph()
        node = graph.sources[self.name]
        if node.time is not None:
            raise DefinitionError(
                "EVENT_TIME_TWICE",
                f"source {self.name!r} already has {node.time!r}. Read it a second time under another name, or use "
                "one strategy for both.",
            )
        schema = self._with_time(strategy)
        graph.sources[self.name] = replace(node, time=strategy)
        return Source(self.raw, self.gate.timed(strategy), schema).frame()

    def _with_time(self, strategy: TimeStrategy) -> StructType:
        fields = {field.name: field for field in self.schema.fields}
        if strategy.kind == "event":
            self._check_column(fields, strategy.column)
            if not isinstance(fields[strategy.column].dataType, TimestampType):
                raise DefinitionError(
                    "EVENT_TIME_TYPE",
                    f"source {self.name!r}: event time column {strategy.column!r} is "
                    f"{fields[strategy.column].dataType.simpleString()}. Declare it as TIMESTAMP.",
                )
            if strategy.partition is not None:
                self._check_column(fields, strategy.partition)
        elif strategy.column in fields:
            raise DefinitionError(
                "COLUMN_EXISTS",
                f"source {self.name!r} already has a column {strategy.column!r}. Choose another name, as in "
                f"hr.{strategy.kind}_time('arrived').",
            )
        fields.setdefault(strategy.column, StructField(strategy.column, TimestampType()))
        tag = time_tag(NodeId("source", self.name))
        return StructType(
            [
                StructField(field.name, field.dataType, field.nullable, tag if field.name == strategy.column else None)
                for field in fields.values()
            ]
        )

    def _check_column(self, fields: dict[str, StructField], column: str) -> None:
        if column not in fields:
            raise DefinitionError(
                "COLUMN_UNKNOWN",
                f"source {self.name!r} has no column {column!r}. Existing columns: {', '.join(fields)}.",
            )


def ticks(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream that brings nothing but a batch: the flow drops a file here when something is due and no row comes."""
    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.format("binaryFile").schema(FILES).load(str(folder)).select()


def add_ticks(raw: DataFrame, folder: Path) -> DataFrame:
    """A source's stream with its ticks, which have null in every column."""
    nothing: list[Any] = [F.lit(None).cast(field.dataType).alias(field.name) for field in raw.schema.fields]
    return raw.union(ticks(raw.sparkSession, folder).select(nothing))


def add_source(source: Source, fingerprint: dict[str, object], folder: Path, **traits: Any) -> DataFrame:
    """Record a source in the active pipeline and return its rows; ``traits`` are further fields of its node."""
    active_graph().add_source(SourceNode(source.name, fingerprint, folder, **traits))
    return source.frame()
