"""How the groups of a table lie in the state: a row for each group, each counted value, and each row of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from headrace.expressions.aggregates.sums import Average, Sum
from headrace.operators.rows import KEY_NUMBER
from headrace.operators.tables.changelog_input import ORDERED
from headrace.operators.tables.retractable_aggregates import (
    CHANGED,
    TIMES,
    WEIGHT,
    RunningTotal,
    ValueCounts,
    is_counted,
    kept_for,
    result_of,
    value_counts,
)
from headrace.operators.windows.aggregation import Aggregation

KIND, OF, ROWS = "__kind", "__of", "__rows"
GROUP, VALUE, ROW = 0, 1, 2


@dataclass(frozen=True)
class GroupState:
    """The columns of the state, and what is kept of each group in them."""

    aggregation: Aggregation
    rows: Mapping[str, pl.DataType]
    """Columns of the table that are kept of every row; none where rows are not told apart."""
    row_key: tuple[str, ...]

    @cached_property
    def kept(self) -> tuple[RunningTotal, ...]:
        """What is kept of a group as numbers."""
        plain = [each for each in self.aggregation.aggregates if not is_counted(each)]
        return tuple(kept for each in plain for kept in kept_for(each, self.aggregation.schema))

    @cached_property
    def counted(self) -> tuple[ValueCounts, ...]:
        """What is kept of a group as values."""
        return value_counts([each for each in self.aggregation.aggregates if is_counted(each)], self.aggregation.schema)

    @cached_property
    def parts(self) -> dict[str, pl.DataType]:
        """The columns of what is kept as numbers."""
        return {name: dtype for kept in self.kept for name, dtype in kept.parts.items()}

    @cached_property
    def results(self) -> dict[str, pl.DataType]:
        """The columns of what was said of a group last, in the order of the aggregates."""
        return {f"__result.{name}": dtype for name, dtype in self.aggregation.results.items()}

    @cached_property
    def row_columns(self) -> dict[str, str]:
        """The columns of the table's rows in the state, by their own names; the group's key is there anyway."""
        return {name: f"__row.{name}" for name in self.rows if name not in self.aggregation.key}

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """Which group, value or row."""
        values = [each.column for each in self.counted]
        rows = [self.row_columns[name] for name in self.row_key if name not in self.aggregation.key]
        return (KIND, *self.aggregation.key, OF, *values, *rows)

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        """All columns of the state."""
        values = {each.column: each.dtype for each in self.counted}
        rows = {state: self.rows[name] for name, state in self.row_columns.items()}
        which = {KIND: pl.Int8(), **self.aggregation.keys, OF: pl.Int16()}
        group = {ROWS: pl.Int64(), **self.parts, **self.results}
        return {**which, **group, **values, TIMES: pl.Int64(), **rows, **ORDERED}

    @cached_property
    def is_empty(self) -> pl.Expr:
        """Whether a row of state is a group without rows, or a value that is not there any more."""
        # No rows is not enough: where a row goes before it has come, something is still owed. Nothing is left of
        # doubles either when all have gone, unless their sum went beyond all doubles.
        doubles = [pl.col(name) for name, dtype in self.parts.items() if dtype.is_float()]
        exact = [pl.col(name) == 0 for name, dtype in {ROWS: pl.Int64(), **self.parts}.items() if not dtype.is_float()]
        exact += [(value == 0) | ~value.is_finite() for value in doubles]
        group = (pl.col(KIND) == GROUP) & pl.all_horizontal(exact)
        return (group | ((pl.col(KIND) == VALUE) & (pl.col(TIMES) == 0))).fill_null(False)

    def state_rows(self, kind: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as state of a kind, null in the columns that they do not have."""
        known = rows.select(name for name in rows.columns if name in self.schema)
        absent = {name: dtype for name, dtype in self.schema.items() if name not in known.columns and name != KIND}
        nulls = [pl.lit(None, dtype).alias(name) for name, dtype in absent.items()]
        return known.with_columns(pl.lit(kind, pl.Int8).alias(KIND), *nulls).select(self.schema.keys())

    def totals(
        self, keys: pl.DataFrame, touched: pl.DataFrame, rows: pl.DataFrame
    ) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """What is kept of each numbered group after rows have come and gone, its results, and values that changed."""
        groups = touched.filter(pl.col(KIND) == GROUP)
        counts = [groups.select(KEY_NUMBER, ROWS), rows.select(KEY_NUMBER, pl.col(WEIGHT).alias(ROWS))]
        totals = keys.join(pl.concat(counts).group_by(KEY_NUMBER).agg(pl.col(ROWS).sum()), on=KEY_NUMBER)
        for kept in self.kept:
            totals = totals.join(kept.total(groups, rows), on=KEY_NUMBER, how="left")
        values = []
        for each in self.counted:
            known = touched.filter((pl.col(KIND) == VALUE) & (pl.col(OF) == each.number))
            found = each.total(known, rows)
            totals = totals.join(each.results(found), on=KEY_NUMBER, how="left")
            values.append(found.filter(CHANGED).with_columns(pl.lit(each.number, pl.Int16).alias(OF)))
        totals = totals.with_columns(pl.col(name).fill_null(0) for name in self.parts)
        return totals.with_columns(self._results(totals)), values

    def _results(self, totals: pl.DataFrame) -> list[pl.Expr]:
        """The results of groups, once every sum and average is known to fit its type."""
        sums = tuple(each for each in self.aggregation.aggregates if isinstance(each.function, Sum | Average))
        replace(self.aggregation, aggregates=sums).result(totals)
        schema, named = self.aggregation.schema, {each.name: each for each in self.aggregation.aggregates}
        counted = {name: group for group in self.counted for name in (each.name for each in group.aggregates)}
        return [
            (counted[name].result(each) if name in counted else result_of(each, schema)).alias(f"__result.{name}")
            for name, each in named.items()
        ]
