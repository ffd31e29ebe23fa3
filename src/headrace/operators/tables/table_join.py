"""The table join: the changes of two tables in, the changes of their joined view out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl

from headrace.durations import Duration
from headrace.errors import check_choice
from headrace.event_time.record import TimeBounds
from headrace.expressions.operands import Schema
from headrace.keys import key_argument, key_columns
from headrace.operators.joins.join_columns import JoinedColumns, JoinKey, OnColumns, join_key, joined_columns
from headrace.operators.rows import TIME, Rows, join_by_key, with_schema
from headrace.operators.tables.changelog_input import (
    LACKS_BEFORE,
    LAST_CHANGE,
    WEEK,
    ChangelogInput,
    ChangelogOperator,
    ChangelogStep,
    check_all_values_sent,
    table_columns,
    tombstone_retention,
)
from headrace.operators.tables.table_changes import CHANGED_AT, VIEW_CHANGELOG, TableChanges, view_changes
from headrace.stability import stable
from headrace.wheel.operator import Applied, Joined

TableJoinHow = Literal["inner", "left", "full"]
RIGHT = "__right"
_OTHER_TIME = "__other_time"


@dataclass(frozen=True, kw_only=True, repr=False)
class TableJoin(ChangelogStep):
    """A join of two changelogs."""

    kind = "table_join"
    changelogs = (0, 1)
    inputs = ("left", "right")

    on: JoinKey
    how: TableJoinHow
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    versions = None

    def bind(self, left: Schema, left_time: str, right: Schema, right_time: str) -> Joined:
        self.on.check(self.name, left, right)
        check_all_values_sent(self.name, left, side="the left rows")
        check_all_values_sent(self.name, right, side="the right rows")
        ours, theirs = table_columns(left), table_columns(right)
        left_rows = Rows(self.name, self.on.left, left_time, dict(left))
        right_rows = Rows(self.name, self.on.right, right_time, dict(right))
        return TableJoinOperator(
            self.name,
            ChangelogInput(left_rows, self.left_key, ours, side="the left rows"),
            self.tombstones,
            ChangelogInput(right_rows, self.right_key, theirs, name="right", side="the right rows"),
            self.on,
            self.how,
            joined_columns(self.name, self.on, ours, theirs, own=VIEW_CHANGELOG),
        )

    @property
    def _identity(self) -> Mapping[str, object]:
        keys = {"left_key": key_argument(self.left_key), "right_key": key_argument(self.right_key)}
        return {"on": self.on.as_written, "how": self.how, **keys}

    @property
    def state_description(self) -> str:
        moving = [
            f"{side} updates must come with update_before, which removes a row from its old {', '.join(columns)}"
            for side, columns, key in (("left", self.on.left, self.left_key), ("right", self.on.right, self.right_key))
            if not set(columns) <= set(key)
        ]
        bound = self.tombstones.upper_bound(tables=2, moving=bool(moving))
        return "; ".join(["every row of both tables, until it is deleted", str(self.tombstones), bound, *moving])

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {**self._identity, **self.tombstones.arguments}


@stable
def table_join(
    name: str,
    *,
    on: OnColumns,
    left_key: str | Sequence[str],
    right_key: str | Sequence[str],
    how: TableJoinHow = "inner",
    keep_deleted: Duration | None = WEEK,
) -> TableJoin:
    """Join two tables by their changelogs; the result is a changelog of the joined view. ``on`` may be a foreign key.

    ``left_key`` and ``right_key`` are the tables' primary keys; the view's is both together.

    >>> table_join("orders", on={"customer": "id"}, left_key="order_id", right_key="id", how="left")
    hr.table_join('orders', on={'customer': 'id'}, how='left', left_key='order_id', right_key='id')
    """
    check_choice(TableJoinHow, step=name, how=how)
    key = join_key(on, step=name)
    return TableJoin(
        name=name,
        key=key.left,
        on=key,
        how=how,
        left_key=key_columns(left_key, argument="left_key", needed_by=name),
        right_key=key_columns(right_key, argument="right_key", needed_by=name),
        tombstones=tombstone_retention(keep_deleted),
    )


@dataclass(frozen=True)
class TableJoinOperator(ChangelogOperator):
    """Keeps the rows of both tables by their join key, in the columns of the view, and their tombstones."""

    second: ChangelogInput
    on: JoinKey
    how: TableJoinHow
    columns: JoinedColumns
    output_time = CHANGED_AT
    """The later event time of both rows."""

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """A row of one table under one join key: a row that moves to another key leaves a tombstone under the old."""
        left = (self.columns.left.get(name, name) for name in self.changelog.row_key)
        names = {**self.columns.right, **self.on.left_of_right}
        right = (names[name] for name in self.second.row_key)
        return tuple(dict.fromkeys((RIGHT, *self.on.left, *left, *right)))

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {RIGHT: pl.Boolean(), **self.columns.schema, **LAST_CHANGE}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self.columns.schema, **VIEW_CHANGELOG}

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        ours = self._state_rows(partials.rename(dict(self.columns.left)), right=False)
        theirs = self._state_rows(second.rename({**self.on.left_of_right, **self.columns.right}), right=True)
        left = TableChanges.of(ours, state.filter(~pl.col(RIGHT)), self.identity)
        right = TableChanges.of(theirs, state.filter(RIGHT), self.identity)
        last = pl.concat([left.last, right.last])
        return Applied(
            *self.retained(last, bounds),
            self._output(left, right, bounds) if last.height else pl.DataFrame(schema=self.output_schema),
            dropped=left.dropped,
            dropped_second=right.dropped,
            counters={
                **{name: left.counters[name] + right.counters[name] for name in left.counters},
                "removed_unknown": left.removed_unknown + right.removed_unknown,
                "updates_without_before": int(partials[LACKS_BEFORE].sum()) + int(second[LACKS_BEFORE].sum()),
            },
        )

    def _state_rows(self, changes: pl.DataFrame, *, right: bool) -> pl.DataFrame:
        return with_schema(changes.with_columns(pl.lit(right).alias(RIGHT)), self.state_schema)

    def _output(self, left: TableChanges, right: TableChanges, bounds: TimeBounds) -> pl.DataFrame:
        before, after = (self._affected(left, right, after=after) for after in (False, True))
        # A row that moves to another join key is deleted and inserted, whether one task has both keys or not.
        return view_changes(before, after, self.identity[1:], bounds).select(self.output_schema.keys())

    def _affected(self, left: TableChanges, right: TableChanges, *, after: bool) -> pl.DataFrame:
        """Rows of the view after the batch that involve a changed row, or those before it that they replace."""
        on, ours, theirs = self.on.left, self.columns.left_schema, self.columns.right_schema
        other_time = pl.col(TIME).alias(_OTHER_TIME)
        parts = [pl.DataFrame(schema={**self.columns.schema, TIME: pl.Int64(), _OTHER_TIME: pl.Int64()})]
        ours_changed, theirs_changed = (table.new if after else table.old for table in (left, right))
        for lefts, rights in ((ours_changed, right.rows(after=after)), (left.unchanged, theirs_changed)):
            if not lefts.is_empty() and not rights.is_empty():
                rows = lefts.select(*on, *ours, TIME)
                parts.append(join_by_key(rows, rights.select(*on, *theirs, other_time), on))
        if self.how != "inner":
            parts.append(self._unmatched(left, right, after=after).select(*on, *ours, TIME, _OTHER_TIME))
        if self.how == "full":
            parts.append(self._unmatched(right, left, after=after).select(*on, *theirs, TIME, _OTHER_TIME))
        later = pl.max_horizontal(TIME, _OTHER_TIME).alias(TIME)
        return pl.concat(parts, how="diagonal").select(*self.columns.schema, later)

    def _unmatched(self, table: TableChanges, other: TableChanges, *, after: bool) -> pl.DataFrame:
        """Rows of a table without a match in the other one."""
        on = list(self.on.left)
        # An unchanged row is affected only where the first row of its key was added or the last one removed.
        was, is_now = (other.rows(after=when).select(on).unique() for when in (False, True))
        turned = pl.concat([was.join(is_now, on=on, how="anti"), is_now.join(was, on=on, how="anti")])
        turned_at = other.last.join(turned, on=on, how="semi").group_by(on).agg(pl.col(TIME).max().alias(_OTHER_TIME))
        changed = table.new if after else table.old
        affected = pl.concat([changed, table.unchanged.join(turned, on=on, how="semi")])
        unmatched = affected.join(is_now if after else was, on=on, how="anti")
        return join_by_key(unmatched, turned_at, on, how="left", maintain_order="left")
