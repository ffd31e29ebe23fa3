"""``hr.generate``: rows are numbered by the clock, and tasks turn each number into a row."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.base.decoding import Decoded
from headrace.connectors.base.enumerator import Planned
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.lines import as_lines
from headrace.connectors.base.source import Gate, add_source, declared_columns
from headrace.errors import DefinitionError, check_name
from headrace.event_time.strategy import EPOCH, instant
from headrace.event_time.tracker import WHOLE
from headrace.generator.payments import Integers
from headrace.graph import active_graph
from headrace.schemas import parse_ddl
from headrace.stability import experimental
from headrace.storage import made_once
from headrace.wheel.task import Task

ORIGIN = "generator"
ROWS_OF_A_TASK = 10_000
"""Fewer are not divided further."""
SECOND = 1_000_000
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
    """Turns row numbers into rows."""

    generator: Generator
    decoder: JsonLines
    start: datetime
    rate: float

    def read(self, given: Sequence[int], task: Task) -> Iterator[Decoded]:
        """The rows from the first number up to the second, which arrived at the third."""
        first, until, arrived = given
        if first < until:
            indices = np.arange(first, until, dtype=np.int64)
            lines = self.generator.lines(indices, start=self.start, rate=self.rate)["line"]
            yield replace(self.decoder.decode_lines(as_lines(lines.to_list(), indices)), origin=ORIGIN, arrived=arrived)


@dataclass(slots=True)
class GeneratorEnumerator:
    """Counts the rows that are due. A position is when the flow began, in microseconds, and the rows since then."""

    rate: int
    clock: Callable[[], int]
    place: str = ORIGIN
    _newest: int | None = None

    def initial(self) -> dict[str, int]:
        return {"began": self.clock(), "rows": 0}

    def stop_at_newest(self) -> None:
        self._newest = self.clock()

    def plan(self, since: Mapping[str, int], *, most: int | None) -> Planned:
        now = self.clock() if self._newest is None else self._newest
        due = max(since["rows"], (now - since["began"]) * self.rate // SECOND)
        rows = due if most is None else min(due, since["rows"] + most)
        return Planned({**since, "rows": rows}, {WHOLE: due - rows} if due > rows else {})

    def splits(self, since: Mapping[str, int], until: Mapping[str, int], *, tasks: int) -> list[list[int]]:
        first, last = since["rows"], until["rows"]
        arrived = until["began"] + last * SECOND // self.rate
        # Neighbouring rows decode together, so few rows go to one task.
        share = max(-(-(last - first) // tasks), ROWS_OF_A_TASK)
        begins = [min(first + share * task, last) for task in range(tasks + 1)]
        return [[begin, end, arrived] for begin, end in pairwise(begins)]


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
    fingerprint = {"kind": "generator", "generator": repr(generator), "rate": rate, "speed": speed}
    return add_source(
        spark,
        gate,
        lambda _: GeneratorEnumerator(rate, lambda: time.time_ns() // 1000),
        struct,
        {**fingerprint, "start": begins.isoformat()},
        counts_rows=True,
        endless=True,
    )


def _stored_start(file: Path, given: datetime | None, speed: float) -> datetime:
    """The given start, or the one that the first run of this checkpoint chose."""
    if given is not None:
        return EPOCH + timedelta(microseconds=instant(given, argument="start"))
    chosen = (datetime.now(UTC) - CATCHES_UP_AFTER * max(speed - 1, 0)).replace(microsecond=0)
    stored = made_once(file, json.dumps({"start": chosen.isoformat()}))
    return datetime.fromisoformat(json.loads(stored)["start"])
