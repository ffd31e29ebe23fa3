"""A Delta table as a small table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.connectors.base.small_table import fitted
from headrace.connectors.delta.log import DeltaLog, table_place
from headrace.errors import HeadraceError
from headrace.schemas import polars_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, repr=False)
class DeltaTable:
    """The newest version of a Delta table, read by the Spark session that runs the pipeline."""

    path: str

    def columns(self) -> Mapping[str, pl.DataType]:
        """The table's columns now."""
        log = DeltaLog(self._spark(), self.path)
        if not log.exists():
            raise HeadraceError("TABLE_MISSING", f"there is no Delta table at {self.path!r}. Make it before the start.")
        return polars_schema(log.schema())

    def read(self) -> pl.DataFrame:
        """All rows of the newest version."""
        columns = self.columns()
        rows = pl.from_arrow(self._spark().read.format("delta").load(self.path).toArrow())
        assert isinstance(rows, pl.DataFrame)
        return fitted(rows, columns, table=f"small table {self.path!r}")

    def _spark(self) -> SparkSession:
        from pyspark.sql import SparkSession

        return SparkSession.active()

    def __repr__(self) -> str:
        return f"hr.delta_table({self.path!r})"


def delta_table(path: str | os.PathLike[str]) -> DeltaTable:
    """A small table that is a Delta table.

    >>> delta_table("s3a://lake/rates")
    hr.delta_table('s3a://lake/rates')
    """
    return DeltaTable(table_place(path))
