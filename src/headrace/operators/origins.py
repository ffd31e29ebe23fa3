"""Where a step reads when it does not stand straight behind a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from headrace.graph import Graph, Origin
from headrace.schemas import from_arrow
from headrace.wheel.spark import Read
from headrace.wheel.task import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Stream:
    """The author's rows, or the blobs of another step."""

    stream: DataFrame
    read: Read
    label: str = ""

    def timed(self, strategy: object) -> None:
        """Not a source."""


@dataclass(frozen=True, slots=True)
class Part:
    """Those rows of a whole for which a condition is true; both parts of one whole can be read at once."""

    whole: Origin
    condition: pl.Expr

    @property
    def stream(self) -> DataFrame:
        """What the whole reads."""
        return self.whole.stream

    @property
    def read(self) -> Read:
        """The rows of the whole, without the others."""
        whole, condition = self.whole.read, self.condition

        def read(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
            return (rows.filter(condition) for rows in whole(batches, task))

        return read

    @property
    def label(self) -> str:
        """The name of the whole."""
        return self.whole.label

    def timed(self, strategy: object) -> None:
        """Not a source."""


@dataclass(frozen=True, slots=True)
class Halves:
    """Two parts of one whole, in their order."""

    whole: Origin
    conditions: tuple[pl.Expr, pl.Expr]

    @classmethod
    def of(cls, origins: Sequence[Origin]) -> Halves | None:
        """What a step's inputs are when both are parts of one whole."""
        match origins:
            case [Part(whole, left), Part(other, right)] if whole is other:
                return cls(whole, (left, right))
            case _:
                return None


def part_of(whole: Origin, condition: pl.Expr) -> Part:
    """A part of a whole; a part of a part is one of the same whole."""
    if isinstance(whole, Part):
        return Part(whole.whole, whole.condition & condition)
    return Part(whole, condition)


def origin_of(frame: DataFrame, graph: Graph) -> Origin:
    """Where the rows of a frame come from: the author's own, unless there is nothing of the author's in between."""
    return graph.origin_of(frame) or Stream(frame, _rows_as_they_are)


def _rows_as_they_are(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
    return (from_arrow(batch) for batch in batches)
