"""Putting a step into the plan: found time, bound operator, recorded node, lowered frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.errors import DefinitionError
from headrace.graph import TIME_TAG, SideOutput, Step, StepNode, active_graph
from headrace.schemas import from_arrow, polars_schema, spark_schema
from headrace.wheel.operator import AnyOperator, Joined
from headrace.wheel.spark import Read, packed, packed_second, rows_of_blobs, turned, unpacked
from headrace.wheel.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Outputs:
    """All outputs of a step by name: ``main`` is a DataFrame, the others are handles that ``hr.write`` takes."""

    main: DataFrame
    late: SideOutput
    side: Mapping[str, SideOutput] = field(default_factory=dict)

    def __getattr__(self, name: str) -> SideOutput:
        """A side output that the step declares, such as ``timed_out``."""
        try:
            return self.side[name]
        except KeyError:
            known = ", ".join(("main", "late", *self.side))
            raise AttributeError(f"the step has no output {name!r}; its outputs are {known}") from None


@dataclass(frozen=True, slots=True)
class Input:
    """A frame that a step reads: its columns, and where its time is."""

    schema: Mapping[str, pl.DataType]
    time: str
    node: str
    """The source or step whose edge the time belongs to."""

    @classmethod
    def of(cls, frame: DataFrame, *, step: str) -> Input:
        """What a step named ``step`` finds in a frame of the active pipeline."""
        graph = active_graph()
        time = graph.time_field(frame, step=step)
        kind, given = time.metadata[TIME_TAG].split(".", 1)
        if kind == "step":
            check_input(step, graph.steps[given].step)
        sources, _ = graph.nodes_in(frame)
        if set(sources) != graph.sources_behind(time.metadata[TIME_TAG]):
            raise DefinitionError(
                "SOURCES_UNITED",
                f"step {step!r} reads a union of the sources {', '.join(sources)}, whose watermarks differ. "
                "Give each source a step of its own.",
            )
        return cls(polars_schema(frame.schema), time.name, time.metadata[TIME_TAG])


def place(step: Step, bind: Callable[..., AnyOperator], *frames: DataFrame) -> Outputs:
    """Put a step behind one or two frames of the active pipeline; ``bind`` takes schema and time of each."""
    graph = active_graph()
    inputs = [Input.of(frame, step=step.name) for frame in frames]
    operator = bind(*(part for each in inputs for part in (each.schema, each.time)))
    # With nothing of the author's in between, what reads a frame's origin and pack are one function in one worker.
    origins = [graph.origin_of(frame) or Stream(frame, _rows) for frame in frames]
    names = [f"{origin.label}headrace.step.{step.name}" for origin in origins]
    blobs = packed(origins[0].stream, origins[0].read, operator, graph.reports, name=names[0])
    if isinstance(operator, Joined):
        blobs = blobs.union(packed_second(origins[1].stream, origins[1].read, operator, graph.reports, name=names[1]))
    results = turned(blobs, operator, graph.reports)
    output = _tagged(spark_schema(operator.output_schema), operator.output_time, f"step.{step.name}")
    placed = graph.register_frame(unpacked(results, output), Stream(results, _rows_of_blobs))
    nodes = tuple(each.node for each in inputs)
    graph.add_step(StepNode(step, nodes, tuple(placed.columns), operator.side_schemas))
    side = {name: SideOutput(step.name, name, placed) for name in operator.side_schemas if name != "late"}
    return Outputs(placed, SideOutput(step.name, "late", placed), side)


def check_input(name: str, earlier: Step) -> None:
    """A step takes the results of another only if none of them is replaced later."""
    if getattr(earlier, "previews", False):
        raise DefinitionError(
            "PREVIEWS_INTO_STEP",
            f"step {name!r} reads step {earlier.name!r}, which emits results that later ones replace, so they would be "
            f"counted more than once. Let {earlier.name!r} say everything once: hr.on_close() and accumulating panes, "
            "sessions also without update_for, hr.global_window with hr.discarding().",
        )


def check_key(name: str, key: tuple[str, ...], schema: Mapping[str, pl.DataType]) -> None:
    """Key columns exist, and their values can be compared."""
    for column in key:
        if column not in schema:
            raise DefinitionError(
                "COLUMN_UNKNOWN",
                f"step {name!r}: key column {column!r} does not exist. Existing columns: {', '.join(schema)}.",
            )
        if schema[column].is_nested():
            raise DefinitionError(
                "KEY_TYPE",
                f"step {name!r}: key column {column!r} is {schema[column]}, which cannot be a key. "
                "Use its fields or elements.",
            )


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a step reads when it does not stand behind a source: the author's rows, or the blobs of another step."""

    stream: DataFrame
    read: Read
    label: str = ""

    def timed(self, strategy: object) -> None:
        """Not a source."""


def _rows(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
    return (from_arrow(batch) for batch in batches)


def _rows_of_blobs(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
    return rows_of_blobs(batches)


def _tagged(schema: StructType, column: str, node: str) -> StructType:
    """The schema with one column marked as the event time of a node's edge."""
    return StructType(
        [
            StructField(field.name, field.dataType, field.nullable, {TIME_TAG: node} if field.name == column else None)
            for field in schema.fields
        ]
    )
