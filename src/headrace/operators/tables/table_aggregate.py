"""The table aggregate: groups of a table whose aggregates follow updates and deletes of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import polars as pl

from headrace.durations import Duration
from headrace.event_time.record import TimeBounds
from headrace.expressions.rows import named_columns
from headrace.keys import Key, key_argument, key_columns
from headrace.operators.rows import KEY_NUMBER, TIME, Rows, with_key_numbers
from headrace.operators.tables.changelog_input import (
    IS_UPSERT,
    LACKS_BEFORE,
    LAST_CHANGE,
    WEEK,
    ChangelogInput,
    ChangelogOperator,
    ChangelogStep,
    check_all_values_sent,
    tombstone_retention,
)
from headrace.operators.tables.group_state import (
    GROUP,
    KIND,
    ROW,
    ROWS,
    VALUE,
    GroupState,
    check_retractable,
    needs_value_counts,
)
from headrace.operators.tables.running_totals import WEIGHT
from headrace.operators.tables.table_changes import CHANGED_AT, VIEW_CHANGELOG, TableChanges, view_changes
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.window_step import AggregatingStep
from headrace.stability import stable
from headrace.wheel.operator import Applied, Operator


@dataclass(frozen=True, kw_only=True, repr=False)
class TableAggregate(ChangelogStep, AggregatingStep):
    """Aggregates of a changelog; call ``.agg()`` before use."""

    kind = "table_aggregate"
    taken = tuple(VIEW_CHANGELOG)

    row_key: tuple[str, ...]

    def agg(self, *unnamed: object, **aggregates: object) -> Self:
        """Name the results and give each an aggregate in SQL, as in ``total="sum(amount)"``."""
        step = super().agg(*unnamed, **aggregates)
        for each in step.aggregates:
            check_retractable(self.name, each)
        return step

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        self._check_aggregates()
        check_all_values_sent(self.name, schema)
        needed = named_columns({*self.key, *self.row_key}.union(*(each.columns for each in self.aggregates)), schema)
        unknown = sorted(needed - set(schema))
        if unknown:
            message = f"column {unknown[0]!r} does not exist. Existing columns: {', '.join(schema)}."
            raise self._wrong("COLUMN_UNKNOWN", message)
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
        return {"key": list(self.key), "row_key": list(self.row_key), "aggregates": self._aggregates}

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
        return (self._agg_call,)


@stable
def table_aggregate(
    name: str, *, key: Key, row_key: str | Sequence[str] = (), keep_deleted: Duration | None = WEEK
) -> TableAggregate:
    """Aggregate a table by ``key``; the result is a changelog. A sum stays right when a row is updated or deleted.

    With ``row_key``, the table's primary key, stale and repeated changes are dropped and counted. Without it every
    change must come exactly once, as from windows with ``hr.retracting()`` and joins with ``hr.update_for(...)``.

    >>> table_aggregate("spend", key="customer", row_key="order_id").agg(total="sum(amount)")
    hr.table_aggregate('spend', key='customer', row_key='order_id').agg(total='sum(amount)')
    """
    rows = key_columns(row_key, argument="row_key")
    return TableAggregate(name=name, key=key_columns(key), row_key=rows, tombstones=tombstone_retention(keep_deleted))


@dataclass(frozen=True)
class TableAggregateOperator(ChangelogOperator):
    """Retracts rows from their groups and adds rows to them, as the changes of the table say."""

    layout: GroupState
    output_time = CHANGED_AT
    """The event time of a group's latest change in the batch."""

    @property
    def identity(self) -> tuple[str, ...]:
        return self.layout.identity

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        return self.layout.schema

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        aggregation = self.layout.aggregation
        return {**aggregation.keys, **aggregation.results, **VIEW_CHANGELOG}

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        touched, changes = (
            with_key_numbers(rows, self.key, of=partials) for rows in (state, partials.drop(LACKS_BEFORE))
        )
        table, counters = None, {"updates_without_before": int(partials[LACKS_BEFORE].sum())}
        if self.changelog.row_key:
            row_key = [KEY_NUMBER, *(name for name in self.changelog.row_key if name not in self.key)]
            names = {state: name for name, state in self.layout.row_columns.items()}
            stored = touched.filter(pl.col(KIND) == ROW).rename(names)
            stored = stored.select(*self.changelog.columns, *LAST_CHANGE, KEY_NUMBER)
            table = TableChanges.of(changes, stored, row_key)
            counters = {**table.counters, **counters}
            weights = ((table.old, -1), (table.new, 1))
            rows = pl.concat([each.with_columns(pl.lit(weight, pl.Int64).alias(WEIGHT)) for each, weight in weights])
        else:
            rows = changes.with_columns(pl.when(IS_UPSERT).then(1).otherwise(-1).cast(pl.Int64).alias(WEIGHT))
        keys = changes.select(KEY_NUMBER, *self.key).unique(KEY_NUMBER, maintain_order=True)
        totals, values = self.layout.totals(keys, touched, rows)
        changed = [self.layout.state_rows(GROUP, totals)]
        changed += [self.layout.state_rows(VALUE, each.join(keys, on=KEY_NUMBER)) for each in values]
        if table is not None:
            changed.append(self.layout.state_rows(ROW, table.last.rename(self.layout.row_columns)))
        return Applied(
            *self.retained(pl.concat(changed), bounds, self.layout.is_empty),
            self._output(touched.filter(pl.col(KIND) == GROUP), totals, rows, bounds),
            dropped=0 if table is None else table.dropped,
            counters=counters,
        )

    def _output(
        self, groups: pl.DataFrame, totals: pl.DataFrame, rows: pl.DataFrame, bounds: TimeBounds
    ) -> pl.DataFrame:
        """The changes of groups whose results have changed."""
        results = self.layout.results
        before, after = (
            each.filter(pl.col(ROWS) > 0).select(KEY_NUMBER, *self.key, *results) for each in (groups, totals)
        )
        both = before.join(after.drop(*self.key), on=KEY_NUMBER, suffix=".new")
        different = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}.new")) for name in results)
        same = both.filter(~different).select(KEY_NUMBER)
        time = rows.group_by(KEY_NUMBER).agg(pl.col(TIME).max()).join(same, on=KEY_NUMBER, how="anti")
        before, after = (view.join(time, on=KEY_NUMBER).sort(KEY_NUMBER) for view in (before, after))
        names = zip(results, self.layout.aggregation.results, strict=True)
        return view_changes(before, after, [KEY_NUMBER], bounds).select(
            *self.key, *(pl.col(state).alias(name) for state, name in names), *VIEW_CHANGELOG
        )
