"""Putting a step without state into the plan: one ``mapInArrow``, named, counted, with time as it was before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.errors import DefinitionError
from headrace.graph import TIME_TAG, SideOutput, Step, StepNode, active_graph
from headrace.operators.origins import Stream, origin_of
from headrace.operators.step import Outputs, tagged
from headrace.schemas import arrow_batches, polars_schema, spark_schema
from headrace.wheel.spark import Read, gathered, rows_in_order
from headrace.wheel.stateless import Stateless, pass_rows
from headrace.wheel.task import Task, current_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def place_stateless(step: Step, bind: Callable[..., Stateless], frame: DataFrame) -> Outputs:
    """Put a step without state behind a frame of the active pipeline.

    ``bind`` takes the frame's schema and the name of the column that carries event time, or None where there is none;
    it returns the ``Stateless`` that runs in tasks. An author's value then has ``name``, ``key`` (columns within which
    timelines compare the order of rows), ``bind``, ``fingerprint`` with a ``kind``, ``holds`` (what ``explain`` says of
    it), ``__call__`` and ``outputs``, and these two call this function. The step behind has the time and the edge of
    the source or step before this one; such a step can be added to a checkpoint and taken out of it again.
    """
    graph = active_graph()
    sources, steps = graph.nodes_in(frame)
    if not sources:
        raise DefinitionError(
            "NOT_A_STREAM",
            f"step {step.name!r}: the frame does not come from a source of Headrace. Read it with hr.read_files, "
            "hr.read_kafka or another of hr.read_..., or hr.generate.",
        )
    times = [field for field in frame.schema.fields if TIME_TAG in (field.metadata or {})]
    operator = bind(polars_schema(frame.schema), times[0].name if times else None)
    origin = origin_of(frame, graph)
    stream, read, label = origin.stream, origin.read, f"{origin.label}headrace.step.{step.name}"
    if operator.gathered_by:
        stream = gathered(stream, read, operator.gathered_by, graph.reports, name=label)
        read, label = _gathered_rows, f"headrace.step.{step.name}"
    passing = _passing(read, operator)
    schema = spark_schema(operator.output_schema)
    if times:
        schema = tagged(schema, times[0].name, f"step.{step.name}")
    placed = stream.mapInArrow(_mapping(passing, schema, label), schema)
    # What stands behind with nothing of the author's in between runs in the same function.
    graph.register_frame(placed, Stream(stream, passing, f"{label}+"))
    before = times[0].metadata[TIME_TAG] if times else f"step.{steps[-1]}" if steps else f"source.{sources[0]}"
    graph.add_step(StepNode(step, (before,), tuple(placed.columns), stateless=True))
    return Outputs(placed, SideOutput(step.name, "late", placed))


def _passing(read: Read, operator: Stateless) -> Read:
    def passing(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
        return pass_rows(read(batches, task), operator, task)

    return passing


def _mapping(
    passing: Read, schema: StructType, name: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    reports = active_graph().reports

    def mapping(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in passing(batches, current_task(reports)):
            yield from arrow_batches(rows, schema)

    mapping.__name__ = name
    return mapping


def _gathered_rows(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
    return rows_in_order(batches)
