"""The table join step: a changelog join of two tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import polars as pl

from headrace.changelog import check_changelog
from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.graph import check_name
from headrace.keys import key_argument, key_columns
from headrace.operators.joins.join_columns import JoinKey, OnColumns, join_key, joined_columns
from headrace.operators.rows import Rows
from headrace.operators.step import check_key
from headrace.operators.tables.changelog_input import (
    CHANGELOG_COLUMNS,
    WEEK,
    ChangelogInput,
    ChangelogStep,
    check_all_values_sent,
    check_primary_key,
    table_columns,
    tombstone_retention,
)
from headrace.operators.tables.table_join_operator import TableJoinHow, TableJoinOperator
from headrace.stability import stable
from headrace.wheel.operator import Joined


@dataclass(frozen=True, kw_only=True, repr=False)
class TableJoin(ChangelogStep):
    """A join of two changelogs."""

    kind = "table_join"
    changelogs = (0, 1)

    on: JoinKey
    how: TableJoinHow
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("left", "right")

    def bind(
        self, left: Mapping[str, pl.DataType], left_time: str, right: Mapping[str, pl.DataType], right_time: str
    ) -> Joined:
        for side, schema, key in (("left", left, self.left_key), ("right", right, self.right_key)):
            check_changelog(self.name, schema, side=f"{side} rows")
            check_key(self.name, key, schema)
            check_primary_key(self.name, key)
            check_all_values_sent(self.name, schema, side=f"the {side} rows")
        self.on.check(self.name, left, right)
        check_primary_key(self.name, (*self.on.left, *self.on.right))
        ours, theirs = table_columns(left), table_columns(right)
        left_rows = Rows(self.name, self.on.left, left_time, dict(left))
        right_rows = Rows(self.name, self.on.right, right_time, dict(right))
        return TableJoinOperator(
            self.name,
            ChangelogInput(left_rows, self.left_key, ours),
            self.tombstones,
            ChangelogInput(right_rows, self.right_key, theirs, name="right"),
            self.on,
            self.how,
            joined_columns(self.name, self.on, ours, theirs, own=CHANGELOG_COLUMNS),
        )

    @property
    def _identity(self) -> Mapping[str, object]:
        keys = {"left_key": list(self.left_key), "right_key": list(self.right_key)}
        return {"on": [list(pair) for pair in self.on.pairs], "how": self.how, **keys}

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
        keys = {"left_key": key_argument(self.left_key), "right_key": key_argument(self.right_key)}
        return {"on": self.on.as_written, "how": self.how, **keys, **self.tombstones.arguments}


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

    ``left_key`` and ``right_key`` are the tables' primary keys; the view's is both together. A deleted row is
    remembered for ``keep_deleted`` of event time (None: for ever), so that an older change does not bring it back.

    >>> table_join("orders", on={"customer": "id"}, left_key="order_id", right_key="id", how="left")
    hr.table_join('orders', on={'customer': 'id'}, how='left', left_key='order_id', right_key='id')
    """
    check_name("step", name)
    if how not in get_args(TableJoinHow):
        raise DefinitionError(
            "JOIN_UNKNOWN",
            f"step {name!r}: how={how!r} is not a join of tables. Use {', '.join(get_args(TableJoinHow))}.",
        )
    key = join_key(on, step=name)
    return TableJoin(
        name=name,
        key=key.left,
        on=key,
        how=how,
        left_key=key_columns(left_key, argument="left_key"),
        right_key=key_columns(right_key, argument="right_key"),
        tombstones=tombstone_retention(keep_deleted),
    )
