"""The Spark engine of timelines: the real flow, over files that the timeline drops batch by batch."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.lease import take_lease
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.sink import BatchIdentity, Guarantee, Written
from headrace.connectors.files.source import read_files
from headrace.graph import SideOutput, active_graph
from headrace.observe.committed import CommittedRows
from headrace.operators.origins import split
from headrace.runtime.flow import Flow
from headrace.runtime.modes import micro_batch
from headrace.runtime.pipeline import Pipeline
from headrace.runtime.session import spark_session
from headrace.runtime.write import write
from headrace.schemas import from_arrow, spark_schema
from headrace.testing.elements import At, Side
from headrace.testing.engine import SOURCES, Setting
from headrace.wheel.side_rows import DEAD_LETTERS


class Died(Exception):
    """A timeline's crash in the middle of a batch."""


class TimelineSink:
    """Hands rows to the timeline, or dies after the state has been computed."""

    guarantee: Guarantee = "exactly_once"
    dies = False

    def __init__(self, setting: Setting, output: str) -> None:
        self._setting = setting
        self._output = output

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        rows = [row for part in frame.toArrow().to_batches() for row in from_arrow(part).rows(named=True)]
        if self.dies:
            raise Died
        self._setting.give(self._output, rows)
        return Written(len(rows), len(rows))


class SparkEngine:
    """Runs batches as Spark jobs."""

    def __init__(self, setting: Setting) -> None:
        from pyspark.sql import SparkSession

        self._setting = setting
        self._spark = SparkSession.getActiveSession() or spark_session("timeline", quick_start=True)
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-timeline-"))
        for side in setting.schemas:
            (self._folder / SOURCES[side]).mkdir()
        self._lease = take_lease(LocalStorage(self._folder / "checkpoint"))
        self._sink = TimelineSink(setting, "main")
        self._dropped = 0
        self._dead_letters = CommittedRows(self._folder / "checkpoint" / "timeline" / DEAD_LETTERS)
        self._interrupted = False
        self._start()

    def _define(self, spark: SparkSession) -> None:
        frames = [self._read(spark, side) for side in self._setting.schemas]
        if self._setting.split is not None:
            frames = [*split(frames[0], *self._setting.split)]
        side_outputs: list[SideOutput] = []
        for step in self._setting.steps:
            outputs = step.outputs(*frames)
            frames = [outputs.main]
            kept = [outputs.late] if "late" in active_graph().steps[step.name].side_outputs else []
            side_outputs += [*kept, *outputs.side.values()]
        self._setting.declare(output.name for output in side_outputs)
        sinks = [(output, TimelineSink(self._setting, output.name)) for output in side_outputs]
        write("timeline", (frames[0], self._sink), *sinks)

    def _read(self, spark: SparkSession, side: Side) -> DataFrame:
        struct = spark_schema(self._setting.schemas[side])
        schema = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in struct.fields)
        source = SOURCES[side]
        frame = read_files(spark, self._folder / source, format="parquet", schema=schema, name=source)
        return frame.transform(self._setting.strategy)

    def _start(self) -> None:
        pipeline = Pipeline(self._define, "timeline")
        graph = pipeline.define(self._spark, self._folder / "checkpoint")
        node, mode = graph.flows["timeline"], micro_batch("1 millisecond")
        self._batches = Flow(graph, node, self._spark, lambda: self._setting.clock, mode, self._lease).batches
        self._setting.take_over(self._batches.planner.time)
        self._begun = False

    def _advance(self) -> None:
        """Run one batch: the interrupted one, or one of what is there."""
        interrupted = self._batches.planner.runs_again
        if not self._begun:
            self._batches.begin()
            self._begun = True
        if not interrupted:
            self._batches.run(self._batches.look())
        self._setting.give(DEAD_LETTERS, self._dead_letters.look().rows(named=True))

    def run(self, rows: Sequence[At]) -> None:
        self._drop(rows)
        self._advance()

    def finish(self) -> bool:
        if not self._interrupted:
            return False
        self._interrupted = False
        self._advance()
        return True

    def crash(self, rows: Sequence[At]) -> None:
        if rows and not self._interrupted:
            self._sink.dies = True
            try:
                self._drop(rows)
                self._advance()
            except Died:
                self._interrupted = True
            finally:
                self._sink.dies = False
        self._start()

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _drop(self, rows: Sequence[At]) -> None:
        self._dropped += 1
        for side in dict.fromkeys(row.side for row in rows):
            unfinished = self._folder / f"unfinished-{side}-{self._dropped}"
            unfinished.mkdir()
            for partition, frame in self._setting.frames(rows, side).items():
                file = unfinished / f"{self._dropped:06d}-{partition}.parquet"
                frame.write_parquet(file)
                arrived = self._setting.clock * 1000
                os.utime(file, ns=(arrived, arrived))
            unfinished.rename(self._folder / SOURCES[side] / f"{self._dropped:06d}")
