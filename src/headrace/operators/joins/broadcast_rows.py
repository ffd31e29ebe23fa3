"""A join with a small table: every task reads the version that its batch names, and joins its own rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.operators.joins.columns import JoinedColumns
from headrace.operators.joins.on import On
from headrace.operators.key_order import join_by_key
from headrace.wheel.key_hash import canonical
from headrace.wheel.stateless import Passed
from headrace.wheel.task import Task

_READ: dict[str, tuple[tuple[str, int, int], pl.DataFrame]] = {}
"""The version that a worker has read last of each table, by the folder of its versions."""


@dataclass(frozen=True)
class Broadcast:
    """Joins rows with one version of a table."""

    name: str
    on: On
    columns: JoinedColumns
    how: Literal["inner", "left"]
    version_column: str

    @property
    def gathered_by(self) -> tuple[str, ...]:
        """Rows stay in the tasks where they are."""
        return ()

    @property
    def output_schema(self) -> dict[str, pl.DataType]:
        """The row, what the table says of it, and the table's version."""
        return {**self.columns.schema, self.version_column: pl.Int64()}

    def passed(self, frames: Iterable[pl.DataFrame], task: Task) -> Iterator[Passed]:
        """The rows, each with those of the table that have its key."""
        version = task.record.tables[self.name]
        table = self._table(task)
        key = [*self.columns.key]
        names = self.columns.left
        for frame in frames:
            rows = canonical(frame, key).select(*key, *(pl.col(name).alias(new) for name, new in names.items()))
            joined = join_by_key(rows, table, key, how=self.how, maintain_order="left_right")
            told = joined.with_columns(pl.lit(version, pl.Int64).alias(self.version_column))
            yield Passed(told.select(self.output_schema.keys()), frame.height)

    def close(self) -> None:
        """Forget the tables."""
        _READ.clear()

    def _table(self, task: Task) -> pl.DataFrame:
        """The batch's version of the table, in the columns of a joined row."""
        table = canonical(_read(task.table_file(self.name)), self.on.right)
        payload = (
            (pl.col(name) if name in table.columns else pl.lit(None)).cast(self.columns.right_schema[new]).alias(new)
            for name, new in self.columns.right.items()
        )
        key = (pl.col(right).alias(left) for left, right in self.on.pairs)
        return table.select(*key, *payload)


def _read(file: str) -> pl.DataFrame:
    """A version; another checkpoint in the same place has its own, under the same names."""
    folder, told = os.path.dirname(file), os.stat(file)
    version = (file, told.st_ino, told.st_mtime_ns)
    known = _READ.get(folder)
    if known is None or known[0] != version:
        known = _READ[folder] = (version, pl.read_parquet(file))
    return known[1]
