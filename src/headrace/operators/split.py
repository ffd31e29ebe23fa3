"""One frame as the two sides of a join, read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.expressions import parse_condition
from headrace.graph import active_graph
from headrace.operators.origins import origin_of, part_of
from headrace.schemas import polars_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    whole, schema = origin_of(frame, graph), polars_schema(frame.schema)
    graph.register_frame(frame, whole)  # so that every part of this frame is one of the same whole
    conditions = [parse_condition(text, schema).truth(schema) for text in (left, right)]
    first, second = (
        graph.register_frame(frame.where(F.expr(text).cast("boolean")), part_of(whole, condition))
        for text, condition in zip((left, right), conditions, strict=True)
    )
    return first, second
