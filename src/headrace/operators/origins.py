"""``hr.split``: two parts of a frame, which a step that takes both reads at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.expressions import parse_row_expression
from headrace.graph import Origin, active_graph
from headrace.schemas import polars_schema
from headrace.stability import experimental
from headrace.wheel.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Origin):
    """The rows of an origin for which a condition is true; both parts of one origin can be read at once."""

    whole: Origin
    condition: pl.Expr


def part_of(whole: Origin, condition: pl.Expr) -> Part:
    """A part of an origin; a part of a part belongs to the same whole."""
    if isinstance(whole, Part):
        condition, whole = whole.condition & condition, whole.whole
    read_whole = whole.read

    def read(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
        return (rows.filter(condition) for rows in read_whole(batches, task))

    return Part(whole.stream, read, whole.nodes, whole.label, whole=whole, condition=condition)


def whole_of(origin: Origin) -> tuple[Origin, pl.Expr | None]:
    """The origin that a part belongs to with the part's condition; any other origin itself."""
    return (origin.whole, origin.condition) if isinstance(origin, Part) else (origin, None)


@experimental
def split(frame: DataFrame, left: str, right: str) -> tuple[DataFrame, DataFrame]:
    """The rows of a frame for which each of two conditions is true; a row may be in both parts, or in neither.

    A step that takes both parts as they are reads the frame once.

    >>> import headrace as hr
    >>> @hr.pipeline
    ... def attribution(spark):
    ...     events = hr.read_files(spark, "events", format="json", schema="user STRING, kind STRING, at TIMESTAMP")
    ...     timed = events.transform(hr.event_time("at", out_of_order="10 seconds"))
    ...     clicks, orders = hr.split(timed, "kind = 'click'", "kind = 'order'")
    ...     led = hr.interval_join("led", on="user", between=("0 seconds", "1 hour")).late(hr.drop())
    ...     hr.write("attribution", led(clicks, orders), hr.to_console())
    """
    graph = active_graph()
    whole, schema = graph.origin_of(frame), polars_schema(frame.schema)
    conditions = [parse_row_expression(text).truth(schema) for text in (left, right)]
    first, second = (
        graph.register_frame(frame.where(F.expr(text).cast("boolean")), part_of(whole, condition))
        for text, condition in zip((left, right), conditions, strict=True)
    )
    return first, second
