"""A join with a small table: every task reads the version that its batch names, and joins its own rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.graph import check_name
from headrace.operators.joins.join_columns import (
    InnerOrLeft,
    JoinedColumns,
    JoinKey,
    OnColumns,
    join_key,
    joined_columns,
)
from headrace.operators.rows import join_by_key
from headrace.operators.step import LateRows, Step
from headrace.wheel.key_groups import canonical
from headrace.wheel.stateless import Passed, Stateless
from headrace.wheel.task import Task

_READ: dict[str, tuple[tuple[str, int, int], pl.DataFrame]] = {}
"""The version that a worker has read last of each table, by the folder of its versions."""


@dataclass(frozen=True)
class BroadcastJoinOperator:
    """Joins rows with one version of a table."""

    name: str
    on: JoinKey
    columns: JoinedColumns
    how: InnerOrLeft
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


@runtime_checkable
class SmallTable(Protocol):
    """A table that is read whole, again and again, where the flow is driven."""

    def columns(self) -> Mapping[str, pl.DataType]:
        """Its columns, found while the pipeline is defined."""

    def read(self) -> pl.DataFrame:
        """All its rows as they are now."""


@dataclass(frozen=True, kw_only=True, repr=False)
class BroadcastJoin(Step):
    """A join with a small table that every worker holds."""

    kind = "broadcast_join"
    stateless = True
    late_rows = LateRows(never="rows are joined with the table as it is, so none is late")

    table: SmallTable
    on: JoinKey
    refresh: int
    how: InnerOrLeft

    @property
    def version_column(self) -> str:
        """The column that says with which version of the table a row was joined."""
        return f"{self.name}_version"

    @cached_property
    def table_columns(self) -> dict[str, pl.DataType]:
        """The table's columns when the pipeline was defined; later ones must have them too."""
        return dict(self.table.columns())

    def bind(self, schema: Mapping[str, pl.DataType], time: str | None) -> Stateless:
        """What runs over rows of this schema."""
        self.on.check(self.name, schema, self.table_columns)
        columns = joined_columns(self.name, self.on, schema, self.table_columns, own=(self.version_column,))
        if time is not None and columns.left.get(time, time) != time:
            raise DefinitionError(
                "OUTPUT_NAME_TAKEN",
                f"step {self.name!r}: the event time {time!r} has the name of the column that tells the table's "
                "version. Rename the step.",
            )
        return BroadcastJoinOperator(self.name, self.on, columns, self.how, self.version_column)

    @property
    def _identity(self) -> Mapping[str, object]:
        return {"on": [list(pair) for pair in self.on.pairs]}

    @property
    def state_description(self) -> str:
        """What is kept, in words and as a bound."""
        return (
            f"none; the table is read again every {spoken(self.refresh)} and kept under <checkpoint>/<flow>/tables/"
            f"{self.name} in the versions that a batch may need, so a batch that runs again finds the same rows; at "
            "most table rows in each worker, 10,000 for a table of 10,000"
        )

    @property
    def _positional(self) -> tuple[str, ...]:
        return (repr(self.table),)

    @property
    def _arguments(self) -> Mapping[str, object]:
        how = {} if self.how == "inner" else {"how": self.how}
        return {"on": self.on.as_written, "refresh": spoken(self.refresh), **how}


def broadcast_join(
    name: str, table: SmallTable, *, on: OnColumns, refresh: Duration = "1 minute", how: InnerOrLeft = "inner"
) -> BroadcastJoin:
    """Each row with the rows of a small table that have its key, as the table was when it was last read.

    ``table`` is ``hr.file_table(...)``, ``hr.delta_table(...)``, ``hr.postgres_table(...)`` or any value with
    ``columns()`` and ``read()``.

    >>> class Rates:
    ...     def columns(self):
    ...         return {"currency": pl.String(), "rate": pl.Float64()}
    ...     def read(self):
    ...         return pl.DataFrame({"currency": ["EUR"], "rate": [1.1]})
    ...     def __repr__(self):
    ...         return "Rates()"
    >>> broadcast_join("rates", Rates(), on="currency", how="left")
    hr.broadcast_join('rates', Rates(), on='currency', refresh='1 minute', how='left')
    """
    check_name("step", name)
    if how not in ("inner", "left"):
        raise DefinitionError(
            "HOW_UNKNOWN",
            f"step {name!r}: how={how!r} is not known. Use 'inner' (rows that the table does not know do not leave) or "
            "'left' (they leave with nulls).",
        )
    if not isinstance(table, SmallTable):
        raise DefinitionError(
            "TABLE_UNKNOWN",
            f"step {name!r}: {table!r} cannot be read as a small table. Give hr.file_table(...), hr.delta_table(...) "
            "or hr.postgres_table(...); for a frame that changes while the flow runs use hr.temporal_join.",
        )
    length = positive_microseconds(refresh, argument="refresh")
    columns = join_key(on, step=name)
    return BroadcastJoin(name=name, key=columns.left, table=table, on=columns, refresh=length, how=how)
