"""``hr.generate``: Spark counts rows, exactly once, and tasks turn each number into a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from headrace.connectors.base.decoding import Decoded
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.lines import as_lines
from headrace.connectors.base.source import Gate, add_source, declared_columns
from headrace.errors import DefinitionError
from headrace.event_time.strategy import EPOCH, instant
from headrace.generator.payments import Integers
from headrace.graph import active_graph, check_name
from headrace.schemas import parse_ddl
from headrace.stability import experimental
from headrace.storage import write_durably
from headrace.wheel.task import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORIGIN = "generator"
ROWS_OF_A_TASK = 100_000
CATCHES_UP_AFTER = timedelta(hours=12)


class Generator(Protocol):
    """Makes every row of an endless stream from its index; its ``repr`` identifies it in the checkpoint."""

    @property
    def schema(self) -> str:
        """The declared columns, as Spark writes them."""

    def lines(self, indices: Integers, *, start: datetime, rate: float) -> pl.DataFrame:
        """The rows with these indices as JSON in a column ``line``, ``rate`` a second of event time from ``start``."""


@dataclass(frozen=True, slots=True)
class GeneratorReader:
    """Turns the row numbers that Spark hands out into rows."""

    generator: Generator
    decoder: JsonLines
    start: datetime
    rate: float

    def read(self, raw: pl.DataFrame, task: Task) -> Iterator[Decoded]:
        """The rows with these numbers; their arrival is the newest time of Spark's counter."""
        due = raw.drop_nulls("value").sort("value")
        if due.is_empty():
            return
        indices = due["value"].to_numpy()
        lines = self.generator.lines(indices, start=self.start, rate=self.rate)["line"]
        newest = due.select(pl.col("timestamp").cast(pl.Int64).max()).item()
        decoded = self.decoder.decode_lines(as_lines(lines.to_list(), indices.astype(np.int64)))
        yield replace(decoded, origin=ORIGIN, arrived=newest)


@experimental
def generate(
    spark: SparkSession,
    generator: Generator,
    *,
    rate: int = 1000,
    name: str | None = None,
    start: datetime | None = None,
    speed: float = 1.0,
) -> DataFrame:
    """The rows of a generator, ``rate`` a second; with ``speed=60`` each second brings a minute of event time.

    A row depends only on the generator, its number and ``start``. Without ``start`` the stream begins now, or, with a
    speed above 1, so far in the past that event time catches up with the clock only after twelve hours; the checkpoint
    keeps that moment, so a restart goes on with the same rows. ``name`` identifies the source in the checkpoint; the
    default is the generator's kind.

    >>> import headrace as hr
    >>> @hr.pipeline
    ... def spend(spark):
    ...     payments = hr.generate(spark, hr.Payments(broken=0.01), rate=500)
    ...     hr.write("spend", payments, hr.to_console())
    """
    called = name or type(generator).__name__.lower()
    check_name("source", called)
    if rate < 1 or speed <= 0:
        raise DefinitionError(
            "GENERATOR_TOO_SLOW",
            f"generator {called!r}: rate={rate} must be at least 1 row per second and speed={speed} above 0.",
        )
    graph = active_graph()
    begins = _stored_start(graph.checkpoint / "generators" / f"{called}.json", start, speed)
    struct = parse_ddl(generator.schema)
    decoder = JsonLines(declared_columns(struct))
    gate = Gate(called, GeneratorReader(generator, decoder, begins, rate / speed), None)
    # Spark deals numbers to tasks in turn. With few tasks, neighbouring rows decode together.
    counter = spark.readStream.format("rate").option("rowsPerSecond", rate)
    raw = counter.option("numPartitions", 1 + rate // ROWS_OF_A_TASK).load()
    fingerprint = {"kind": "generator", "generator": repr(generator), "rate": rate, "speed": speed}
    return add_source(gate, raw, struct, {**fingerprint, "start": begins.isoformat()})


def _stored_start(file: Path, given: datetime | None, speed: float) -> datetime:
    """The given start, or the one that the first run of this checkpoint chose."""
    if given is not None:
        return EPOCH + timedelta(microseconds=instant(given, argument="start"))
    if file.exists():
        return datetime.fromisoformat(json.loads(file.read_text(encoding="utf-8"))["start"])
    now = datetime.now(UTC).replace(microsecond=0)
    chosen = (now - CATCHES_UP_AFTER * max(speed - 1, 0)).replace(microsecond=0)
    write_durably(file, json.dumps({"start": chosen.isoformat()}))
    return chosen
