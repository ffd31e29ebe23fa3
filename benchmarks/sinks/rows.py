"""The rows that every sink is given: kept in Spark's memory, so that reading them costs nobody anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

PARTITIONS = 2
FIRST_SECOND = 1_767_225_600


@dataclass(frozen=True, slots=True)
class Rows:
    """Batches of ``number`` rows of about 200 bytes; each has half of its ids in common with the one before."""

    number: int
    kept: DataFrame

    def frame(self, batch: int) -> DataFrame:
        """The rows of a batch."""
        return self.kept.select(
            (F.col("id") + batch * (self.number // 2)).alias("id"),
            F.lit(batch).alias("batch"),
            "account",
            (F.col("amount") + batch).alias("amount"),
            "at",
            "text",
        )

    def in_memory(self) -> Callable[[int], pl.DataFrame]:
        """The same batches in this process, for peers that do not use Spark."""
        first = pl.from_arrow(self.frame(0).toArrow())
        assert isinstance(first, pl.DataFrame)

        def batch_of(batch: int) -> pl.DataFrame:
            later = pl.col("id") + batch * (self.number // 2), pl.lit(batch, pl.Int32).alias("batch")
            return first.with_columns(*later, pl.col("amount") + batch)

        return batch_of


def make_rows(spark: SparkSession, number: int) -> Rows:
    """Make the rows and keep them."""
    made = spark.range(0, number, 1, PARTITIONS).select(
        "id",
        F.concat(F.lit("account-"), F.col("id") % 10_007).alias("account"),
        # Quarters and whole seconds have one form as text, whoever writes them.
        (F.col("id") * 7 % 100_000 / 4).alias("amount"),
        F.timestamp_seconds(F.lit(FIRST_SECOND) + F.col("id") % 864_000).alias("at"),
        F.concat(F.sha2(F.col("id").cast("string"), 256), F.sha2(F.hex("id"), 256)).alias("text"),
    )
    kept = made.persist()
    kept.count()
    return Rows(number, kept)
