"""The flow of the soak: every user visits for ten minutes of event time and never comes back.

``python -m benchmarks.soak.job <checkpoint> <folder for Spark's files>`` runs it until it is told to stop.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl
from pyspark.sql import SparkSession

import headrace as hr
from benchmarks.discard import Discard

FLOW = "visits"
RATE = 5_000
"""Rows a second."""
SPEED = 120
USERS = 5_000
"""Of a generation."""
GENERATION = 25_000
"""Rows of a generation: five seconds, or ten minutes of event time."""
SETTINGS = {"spark.driver.memory": "1g"}
"""A small heap is soon as large as it gets."""


@dataclass(frozen=True, slots=True)
class Visits:
    """Rows in the order of their time; the users of a generation come in turns, and no other generation has them."""

    schema: ClassVar[str] = "user BIGINT, at TIMESTAMP"

    def lines(self, indices: npt.NDArray[np.int64], *, start: datetime, rate: float) -> pl.DataFrame:
        """The rows with these indices as JSON, ``rate`` a second of event time from ``start``."""
        user = pl.Series("user", indices // GENERATION * USERS + indices % USERS)
        passed = pl.Series((indices * (1_000_000 / rate)).astype(np.int64)).cast(pl.Duration("us"))
        at = (pl.lit(start).dt.cast_time_unit("us") + passed).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        return pl.select(pl.format('{{"user": {}, "at": "{}"}}', user, at).cast(pl.Binary).alias("line"))


class Counting(hr.KeyedProcess):
    """Numbers the visits of a user."""

    seen = hr.value_state("BIGINT", ttl="30 minutes")

    def on_row(self, row: Any, context: Any) -> Iterator[dict[str, Any]]:
        """Count."""
        visit = (self.seen.get() or 0) + 1
        self.seen.set(visit)
        yield {"user": context.key, "visit": visit}


@hr.pipeline
def soak(spark: SparkSession) -> None:
    """A process whose state has a time to live, and windows behind it."""
    visits = hr.generate(spark, Visits(), rate=RATE, speed=SPEED).transform(hr.event_time("at"))
    counting = hr.process("counting", Counting, key="user", output="user BIGINT, visit BIGINT").late(hr.drop())
    windows = hr.tumbling("windows", size="10 minutes", key="user").agg(n="count(*)", last="max(visit)").late(hr.drop())
    hr.write(FLOW, visits.transform(counting).transform(windows), Discard(None))


def main(checkpoint: str, spark_folder: str) -> None:
    spark = hr.spark_session("soak", master="local[2]", settings={**SETTINGS, "spark.local.dir": spark_folder})
    soak.run(checkpoint=checkpoint, mode=hr.micro_batch("1 second"), spark=spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
