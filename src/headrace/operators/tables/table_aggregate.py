"""The table aggregate step: aggregates of a changelog that follow updates and deletes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import polars as pl

from headrace.changelog import check_changelog
from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.expressions import Aggregate, parse_aggregate
from headrace.graph import check_name
from headrace.keys import Key, key_argument, key_columns
from headrace.operators.rows import Rows
from headrace.operators.step import check_key
from headrace.operators.tables.changelog_input import (
    CHANGELOG_COLUMNS,
    WEEK,
    ChangelogInput,
    ChangelogStep,
    check_all_values_sent,
    check_primary_key,
    tombstone_retention,
)
from headrace.operators.tables.group_state import GroupState
from headrace.operators.tables.retractable_aggregates import check_retractable, needs_value_counts
from headrace.operators.tables.table_aggregate_operator import TableAggregateOperator
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.window_step import check_named
from headrace.stability import stable
from headrace.wheel.operator import Operator


@dataclass(frozen=True, kw_only=True, repr=False)
class TableAggregate(ChangelogStep):
    """Aggregates of a changelog; call ``.agg()`` before use."""

    kind = "table_aggregate"

    row_key: tuple[str, ...]
    aggregates: tuple[Aggregate, ...] = ()

    def agg(self, *unnamed: object, **aggregates: object) -> Self:
        """Name the results and give each an aggregate in SQL, as in ``total="sum(amount)"``."""
        check_named(f"step {self.name!r}", unnamed)
        for name in aggregates:
            if name in (*CHANGELOG_COLUMNS, *self.key):
                raise DefinitionError(
                    "RESULT_NAME_TAKEN",
                    f"step {self.name!r}: result {name!r} has the name of a key or of a column of the changelog "
                    f"({', '.join(CHANGELOG_COLUMNS)}). Choose another name.",
                )
        parsed = tuple(parse_aggregate(given, name=name) for name, given in aggregates.items())
        for each in parsed:
            check_retractable(self.name, each)
        return replace(self, aggregates=parsed)

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        if not self.aggregates:
            raise DefinitionError(
                "AGGREGATES_MISSING",
                f"step {self.name!r} computes nothing. Add .agg(...), as in .agg(rows='count(*)').",
            )
        check_changelog(self.name, schema, placed=bool(self.row_key))
        check_all_values_sent(self.name, schema)
        check_key(self.name, self.key, schema)
        check_key(self.name, self.row_key, schema)
        if self.key or self.row_key:
            check_primary_key(self.name, (*self.key, *self.row_key))
        needed = {*self.key, *self.row_key}.union(*(each.columns for each in self.aggregates))
        unknown = sorted(needed - set(schema))
        if unknown:
            raise DefinitionError(
                "COLUMN_UNKNOWN",
                f"step {self.name!r}: column {unknown[0]!r} does not exist. Existing columns: {', '.join(schema)}.",
            )
        columns = {name: dtype for name, dtype in schema.items() if name in needed}
        aggregation = Aggregation(self.name, self.key, time, columns, self.aggregates)
        layout = GroupState(aggregation, columns if self.row_key else {}, self.row_key)
        rows = Rows(self.name, self.key, time, dict(schema))
        changelog = ChangelogInput(rows, self.row_key, columns)
        operator = TableAggregateOperator(self.name, changelog, self.tombstones, layout)
        _ = operator.output_schema, operator.state_schema  # checks the types before any data is read
        return operator

    @property
    def _identity(self) -> Mapping[str, object]:
        aggregates = {each.name: each.text for each in self.aggregates}
        return {"key": list(self.key), "row_key": list(self.row_key), "aggregates": aggregates}

    @property
    def state_description(self) -> str:
        parts = ["a row for each group, until it is empty"]
        counted = any(map(needs_value_counts, self.aggregates))
        if counted:
            parts.append("each distinct value that min, max and count(DISTINCT) read, and how often it occurs")
        if self.row_key:
            moving = not set(self.key) <= set(self.row_key)
            parts += ["the columns that are read of each row of the table", str(self.tombstones)]
            bound = self.tombstones.upper_bound(tables=1, moving=moving)
            parts.append(f"beside groups{' and values' * counted} {bound}")
        else:
            bound = "groups + distinct values of each; with 10,000 groups of 100 values 1,010,000 rows"
            parts.append(f"at most {bound if counted else 'groups; with 10,000 groups 10,000 rows'}")
            parts.append("every change is counted: stale and repeated ones are only dropped with row_key=")
        return "; ".join(parts)

    @property
    def _arguments(self) -> Mapping[str, object]:
        rows = {"row_key": key_argument(self.row_key), **self.tombstones.arguments} if self.row_key else {}
        return {"key": key_argument(self.key), **rows}

    @property
    def _calls(self) -> tuple[str, ...]:
        aggregates = ", ".join(f"{each.name}={each.code}" for each in self.aggregates)
        return (f".agg({aggregates})" if aggregates else "",)


@stable
def table_aggregate(
    name: str, *, key: Key, row_key: str | Sequence[str] = (), keep_deleted: Duration | None = WEEK
) -> TableAggregate:
    """Aggregate a table by ``key``; the result is a changelog. A sum stays right when a row is updated or deleted.

    With ``row_key``, the table's primary key, stale and repeated changes are dropped and counted, and a deleted row is
    remembered for ``keep_deleted`` of event time (None: for ever). Without it every change must come exactly once, as
    from steps of Headrace that retract: windows with ``hr.retracting()``, joins with ``hr.update_for(...)``.

    >>> table_aggregate("spend", key="customer", row_key="order_id").agg(total="sum(amount)")
    hr.table_aggregate('spend', key='customer', row_key='order_id').agg(total='sum(amount)')
    """
    check_name("step", name)
    rows = key_columns(row_key, argument="row_key")
    return TableAggregate(name=name, key=key_columns(key), row_key=rows, tombstones=tombstone_retention(keep_deleted))
