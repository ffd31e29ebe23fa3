"""Rows that a flow cannot use, kept with the reason: those of a source, and those for which an author's code failed."""

from __future__ import annotations

import polars as pl

from headrace.schemas import MOMENT
from headrace.wheel.task import Task

DEAD_LETTERS = "dead_letters"
DEAD_LETTER_SCHEMA = {
    "source": pl.String(),
    "origin": pl.String(),
    "position": pl.Int64(),
    "reason": pl.String(),
    "detail": pl.String(),
    "raw": pl.Binary(),
    "batch": pl.Int64(),
    "read_at": MOMENT,
}


def letters(dead: pl.DataFrame, *, source: str, origin: str, task: Task) -> pl.DataFrame:
    """Dead rows (``position``, ``reason``, ``detail``, ``raw``) with where they came from and when."""
    return dead.select(
        pl.lit(source).alias("source"),
        pl.lit(origin).alias("origin"),
        "position",
        "reason",
        "detail",
        "raw",
        pl.lit(task.record.batch, pl.Int64).alias("batch"),
        pl.lit(task.record.clock).cast(MOMENT).alias("read_at"),
    )


def failed_letters(failed: pl.DataFrame, *, step: str, task: Task) -> pl.DataFrame:
    """Rows for which the code of a step's author failed."""
    dead = failed.select(
        pl.lit(None, pl.Int64).alias("position"), "reason", "detail", pl.col("row").cast(pl.Binary).alias("raw")
    )
    return letters(dead, source=step, origin=f"step {step}", task=task)
