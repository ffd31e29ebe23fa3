"""Aggregates of a table that is followed by its changes, as an author says them."""

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
from headrace.keys import Key, key_columns, said_key
from headrace.operators.rows import Rows
from headrace.operators.step import LateRows, Step, check_key
from headrace.operators.tables.changelog_input import OWN, WEEK, ChangelogInput, TombstoneRetention, tombstone_retention
from headrace.operators.tables.group_state import GroupState
from headrace.operators.tables.materialize import check_row_key
from headrace.operators.tables.retractable_aggregates import check_retractable, is_counted
from headrace.operators.tables.table_aggregate_operator import TableAggregateOperator
from headrace.operators.tables.table_join import check_complete
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.window_step import check_named
from headrace.wheel.operator import Operator


@dataclass(frozen=True, kw_only=True, repr=False)
class TableAggregate(Step):
    """Aggregates of a changelog; call ``.agg()`` before use."""

    kind = "table_aggregate"
    changelogs = (0,)
    late_rows = LateRows(never="changes are ordered by their positions, so none is late")

    row_key: tuple[str, ...]
    deleted: TombstoneRetention
    aggregates: tuple[Aggregate, ...] = ()

    def agg(self, *unnamed: object, **aggregates: object) -> Self:
        """Name the results and give each an aggregate in SQL text, as in ``total="sum(amount)"``."""
        check_named(f"step {self.name!r}", unnamed)
        for name in aggregates:
            if name in (*OWN, *self.key):
                raise DefinitionError(
                    "RESULT_NAME_TAKEN",
                    f"step {self.name!r}: result {name!r} has the name of a key or of a column of the changelog "
                    f"({', '.join(OWN)}). Choose another name.",
                )
        parsed = tuple(parse_aggregate(given, name=name) for name, given in aggregates.items())
        for each in parsed:
            check_retractable(self.name, each)
        return replace(self, aggregates=parsed)

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        """The operator that runs over changes of this schema."""
        if not self.aggregates:
            raise DefinitionError(
                "AGGREGATES_MISSING",
                f"step {self.name!r} computes nothing. Add .agg(...), as in .agg(rows='count(*)').",
            )
        check_changelog(self.name, schema, placed=bool(self.row_key))
        check_complete(self.name, schema)
        check_key(self.name, self.key, schema)
        check_key(self.name, self.row_key, schema)
        if self.key or self.row_key:
            check_row_key(self.name, (*self.key, *self.row_key))
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
        operator = TableAggregateOperator(self.name, layout, ChangelogInput(rows, self.row_key, columns), self.deleted)
        _ = operator.output_schema, operator.state_schema  # types are checked here, before any data is read
        return operator

    @property
    def _identity(self) -> Mapping[str, object]:
        aggregates = {each.name: each.text for each in self.aggregates}
        keys = {"key": list(self.key), "row_key": list(self.row_key)}
        return {**keys, "aggregates": aggregates}

    @property
    def retracts(self) -> bool:
        """Updates and deletes retract rows."""
        return True

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words and as a bound."""
        held = ["a row for each group, until it is empty"]
        counted = any(map(is_counted, self.aggregates))
        if counted:
            held.append("each different value that min, max and count(DISTINCT) read, and how often it is there")
        if self.row_key:
            moving = not set(self.key) <= set(self.row_key)
            held += ["what is read of each row of the table", str(self.deleted)]
            held.append(f"beside groups{' and values' * counted} {self.deleted.most(tables=1, moving=moving)}")
        else:
            most = "groups + different values of each; with 10,000 groups of 100 values 1,010,000 rows"
            held.append(f"at most {most if counted else 'groups; with 10,000 groups 10,000 rows'}")
            held.append("every change is counted: stale and repeated ones are told only with row_key=")
        return "; ".join(held)

    @property
    def _arguments(self) -> Mapping[str, object]:
        rows = {"row_key": said_key(self.row_key), **self.deleted.arguments} if self.row_key else {}
        return {"key": said_key(self.key), **rows}

    @property
    def _calls(self) -> tuple[str, ...]:
        aggregates = ", ".join(f"{each.name}={each.code}" for each in self.aggregates)
        return (f".agg({aggregates})" if aggregates else "",)


def table_aggregate(
    name: str, *, key: Key, row_key: str | Sequence[str] = (), keep_deleted: Duration | None = WEEK
) -> TableAggregate:
    """Aggregates of a table by ``key``, as a changelog: a sum stays right when a row is changed or deleted.

    With ``row_key``, the table's primary key, stale and repeated changes are dropped and counted, and a deleted row is
    remembered for ``keep_deleted`` of event time (None: for ever). Without it every change must come exactly once, as
    what a step of Headrace takes back does: windows with ``hr.retracting()``, joins with ``hr.update_for(...)``.

    >>> table_aggregate("spend", key="customer", row_key="order_id").agg(total="sum(amount)")
    hr.table_aggregate('spend', key='customer', row_key='order_id').agg(total='sum(amount)')
    """
    check_name("step", name)
    rows = key_columns(row_key, argument="row_key")
    return TableAggregate(name=name, key=key_columns(key), row_key=rows, deleted=tombstone_retention(keep_deleted))
