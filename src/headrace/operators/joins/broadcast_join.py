"""The broadcast join: rows with a small table that every task reads whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError, check_choice
from headrace.key_hash import canonical
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
from headrace.stability import stable
from headrace.wheel.side_rows import read_rows
from headrace.wheel.stateless import Passed, Stateless
from headrace.wheel.task import Task


@runtime_checkable
class SmallTable(Protocol):
    """A table that the driver reads whole, again and again."""

    def columns(self) -> Mapping[str, pl.DataType]:
        """Its columns, when the pipeline is defined."""

    def read(self) -> pl.DataFrame:
        """All its current rows."""


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
        return f"{self.name}_version"

    @cached_property
    def table_columns(self) -> dict[str, pl.DataType]:
        """The table's columns when the pipeline was defined; later versions must have them too."""
        return dict(self.table.columns())

    def bind(self, schema: Mapping[str, pl.DataType], time: str | None) -> Stateless:
        self.on.check(self.name, schema, self.table_columns)
        columns = joined_columns(self.name, self.on, schema, self.table_columns, own=(self.version_column,))
        if time is not None and columns.left.get(time, time) != time:
            raise self._wrong(
                "OUTPUT_NAME_TAKEN",
                f"the event time column {time!r} has the name of the column for the table's version. Rename the step.",
            )
        return BroadcastJoinOperator(self.name, self.on, columns, self.how, self.version_column)

    @property
    def state_description(self) -> str:
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


@stable
def broadcast_join(
    name: str, table: SmallTable, *, on: OnColumns, refresh: Duration = "1 minute", how: InnerOrLeft = "inner"
) -> BroadcastJoin:
    """Join each row with the rows of a small table that have its key, as the table was when it was last read.

    ``table`` is ``hr.file_table(...)``, ``hr.delta_table(...)``, ``hr.postgres_table(...)`` or any value with
    ``columns()`` and ``read()``. It is read again every ``refresh``.

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
    check_choice(InnerOrLeft, step=name, how=how)
    if not isinstance(table, SmallTable):
        raise DefinitionError(
            "TABLE_UNKNOWN",
            f"step {name!r}: {table!r} is not a small table. Give hr.file_table(...), hr.delta_table(...) or "
            "hr.postgres_table(...); for a frame that changes while the flow runs use hr.temporal_join.",
        )
    length, key = positive_microseconds(refresh, argument="refresh"), join_key(on, step=name)
    return BroadcastJoin(name=name, key=key.left, table=table, on=key, refresh=length, how=how)


@dataclass(frozen=True)
class BroadcastJoinOperator:
    """Joins the rows of a task with the version of the table that its batch names."""

    name: str
    on: JoinKey
    columns: JoinedColumns
    how: InnerOrLeft
    version_column: str
    gathered_by = ()

    @property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self.columns.schema, self.version_column: pl.Int64()}

    def passed(self, frames: Iterable[pl.DataFrame], task: Task) -> Iterator[Passed]:
        version = task.record.tables[self.name]
        table = self._table(task)
        key = [*self.columns.key]
        for frame in frames:
            left = (pl.col(name).alias(joined) for name, joined in self.columns.left.items())
            rows = canonical(frame, key).select(*key, *left)
            joined = join_by_key(rows, table, key, how=self.how, maintain_order="left_right")
            joined = joined.with_columns(pl.lit(version, pl.Int64).alias(self.version_column))
            yield Passed(joined.select(self.output_schema.keys()), frame.height)

    def close(self) -> None:
        """Nothing is kept between batches: a version is mapped, not copied."""

    def _table(self, task: Task) -> pl.DataFrame:
        """The batch's version of the table, in the columns of a joined row."""
        table = canonical(read_rows(task.state.storage, task.table_file(self.name)), self.on.right)
        payload = (
            (pl.col(name) if name in table.columns else pl.lit(None)).cast(self.columns.right_schema[new]).alias(new)
            for name, new in self.columns.right.items()
        )
        key = (pl.col(right).alias(left) for left, right in self.on.pairs)
        return table.select(*key, *payload)
