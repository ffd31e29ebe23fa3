"""Putting a step into the plan: found time, bound operator, recorded node, lowered frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.errors import DefinitionError
from headrace.graph import TIME_TAG, SideOutput, Step, StepNode, active_graph
from headrace.schemas import from_arrow, polars_schema, spark_schema
from headrace.wheel.operator import Operator
from headrace.wheel.spark import Read, packed, rows_of_blobs, turned, unpacked
from headrace.wheel.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Outputs:
    """All outputs of a step by name: ``main`` is a DataFrame, the others are handles that ``hr.write`` takes."""

    main: DataFrame
    late: SideOutput


def place(step: Step, bind: Callable[[Mapping[str, pl.DataType], str], Operator], frame: DataFrame) -> Outputs:
    """Put a step behind a frame of the active pipeline."""
    graph = active_graph()
    time = graph.time_field(frame, step=step.name)
    kind, given = time.metadata[TIME_TAG].split(".", 1)
    if kind == "step":
        check_input(step.name, graph.steps[given].step)
    sources, _ = graph.nodes_in(frame)
    if len(sources) > 1:
        raise DefinitionError(
            "SOURCES_UNITED",
            f"step {step.name!r} reads a union of the sources {', '.join(sources)}, whose watermarks differ. "
            "Give each source a step of its own.",
        )
    operator = bind(polars_schema(frame.schema), time.name)
    output = _tagged(spark_schema(operator.output_schema), operator.output_time, f"step.{step.name}")
    # With nothing of the author's in between, what reads the frame's origin and pack are one function in one worker.
    origin = graph.origin_of(frame) or Stream(frame, _rows)
    name = f"{origin.label}headrace.step.{step.name}"
    blobs = turned(packed(origin.stream, origin.read, operator, graph.reports, name=name), operator, graph.reports)
    placed = graph.register_frame(unpacked(blobs, output), Stream(blobs, _rows_of_blobs))
    late = operator.late_schema
    graph.add_step(
        StepNode(step, (time.metadata[TIME_TAG],), tuple(placed.columns), {} if late is None else {"late": late})
    )
    return Outputs(placed, SideOutput(step.name, "late", placed))


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
