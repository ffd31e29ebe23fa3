"""``pipeline.backfill`` through joins, tables and chains: what the drained stream of the same rows has at its end."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.observe import history
from headrace.observe.committed import committed_rows
from headrace.rendering import json_lines
from headrace.runtime.pipeline import Pipeline
from headrace.schemas import spark_schema
from headrace.testing.elements import At, Side
from headrace.testing.engine import BY_HAND, SOURCES, TIME, Setting, schema_of
from tests.models import every_step
from tests.timelines.bounded import answers

pytestmark = pytest.mark.spark

FILES = 4
STEPS = ("interval join", "window join", "temporal join", "table join", "materialize", "table aggregate", "outbox")
BY_RULES_AND_CHAINS = ("pattern rules", "process with rules", "chain")

# Spark's workers cannot import this module, so they get its classes whole.
cloudpickle.register_pickle_by_value(sys.modules[every_step.__name__])


def pipeline(folder: Path, out: Path, steps: tuple[Any, ...], schemas: dict[Side, str]) -> Pipeline:
    @hr.pipeline(name="any_step")
    def any_step(spark: SparkSession) -> None:
        timed = hr.event_time(TIME, out_of_order="1 hour")
        frames = [
            hr.read_files(
                spark, folder / side, format="json", schema=schema, name=SOURCES[side], files_per_batch=1
            ).transform(timed)
            for side, schema in schemas.items()
        ]
        results = steps[0](*frames)
        for step in steps[1:]:
            results = results.transform(step)
        hr.write("flow", results, hr.to_files(out))

    return any_step


def said(out: Path, step: Any) -> Counter[tuple[str, ...]]:
    return answers("main", committed_rows(out).rows(named=True), step)


@pytest.mark.parametrize(
    "name",
    [
        *STEPS[:1],
        *(pytest.param(name, marks=pytest.mark.full) for name in (*STEPS[1:], *BY_RULES_AND_CHAINS)),
    ],
)
def test_a_backfill_of_a_step_says_what_the_drained_stream_says(name: str, tmp_path: Path, spark: SparkSession) -> None:
    given = every_step.step_of(name)
    steps = given if isinstance(given, tuple) else (given,)
    rows = [each for each in every_step.elements_of(name) if isinstance(each, At)]
    schemas, tables = dict[Side, str](), dict[str, DataFrame]()
    for side in SOURCES:
        if not (own := [row for row in rows if row.side == side]):
            continue
        schema = schema_of(own, partition=False)
        (frame,) = Setting(steps, BY_HAND, {side: schema}).frames(own, side).values()
        frame = frame.select(*schema)
        _land(frame, tmp_path / side)
        schemas[side] = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in spark_schema(schema))
        tables[SOURCES[side]] = spark.createDataFrame(frame.to_arrow())
    stream, backfill = tmp_path / "of_stream", tmp_path / "of_tables"
    pipeline(tmp_path, stream / "out", steps, schemas).run(
        checkpoint=stream / "checkpoint", mode=hr.available_now(drain=True), spark=spark
    )
    pipeline(tmp_path, backfill / "out", steps, schemas).backfill(
        tables, checkpoint=backfill / "checkpoint", spark=spark
    )
    assert said(backfill / "out", steps[-1]) == said(stream / "out", steps[-1])
    assert committed_rows(backfill / "out").height >= 5
    (batch,) = history.read(backfill / "checkpoint" / "flow")
    assert len(history.read(stream / "checkpoint" / "flow")) >= FILES
    total = history.read(stream / "checkpoint" / "flow")[-1].total
    assert batch.total.sources == total.sources
    assert (total.late, total.dead) == (0, 0)


def _land(frame: pl.DataFrame, folder: Path) -> None:
    """The rows in files, a batch for each."""
    folder.mkdir()
    size = -(-frame.height // FILES)
    for number in range(FILES):
        (folder / f"{number}.json").write_bytes(json_lines(frame.slice(number * size, size)))
