"""What both temporal joins say alike: a row of the left side travels whole and leaves with a version of its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.operators.arrival import ARRIVAL
from headrace.operators.joins.temporal_layout import Layout
from headrace.operators.joins.temporal_versions import VersionIntake


@dataclass(frozen=True)
class AsOf:
    """A join of rows with versions."""

    name: str
    layout: Layout
    how: Literal["inner", "left"]
    ttl: int | None
    second: VersionIntake

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.layout.on.left

    @property
    def identity(self) -> tuple[str, ...]:
        """Rows and versions are told apart by their arrival."""
        return (ARRIVAL,)

    @property
    def output_time(self) -> str:
        """The time of the row."""
        return self.layout.output_time

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Rows travel whole."""
        return dict(self.layout.rows.schema)

    @property
    def output_schema(self) -> dict[str, pl.DataType]:
        """The row, and of the version what is not the key."""
        return self.layout.output_schema

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rows stay as they are, in the order of their arrival."""
        return partials
