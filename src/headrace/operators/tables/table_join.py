"""A join of two tables that are followed by their changes, as an author says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import polars as pl

from headrace.changelog import UNCHANGED, check_changelog
from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.graph import check_name
from headrace.keys import key_columns, said_key
from headrace.operators.joins.join_columns import JoinKey, OnColumns, join_key, joined_columns
from headrace.operators.rows import Rows
from headrace.operators.step import LateRows, Step, check_key
from headrace.operators.tables.changelog_input import (
    OWN,
    WEEK,
    ChangelogInput,
    TombstoneRetention,
    table_columns,
    tombstone_retention,
)
from headrace.operators.tables.materialize import check_row_key
from headrace.operators.tables.table_join_operator import How, TableJoinOperator
from headrace.wheel.operator import Joined


@dataclass(frozen=True, kw_only=True, repr=False)
class TableJoin(Step):
    """A join of two changelogs."""

    kind = "table_join"
    changelogs = (0, 1)
    late_rows = LateRows(never="changes are ordered by their positions, so none is late")

    on: JoinKey
    how: How
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    deleted: TombstoneRetention

    def bind(
        self,
        left: Mapping[str, pl.DataType],
        left_time: str,
        right: Mapping[str, pl.DataType],
        right_time: str,
    ) -> Joined:
        """The operator that runs over changes of these schemas."""
        for side, schema, key in (("left", left, self.left_key), ("right", right, self.right_key)):
            check_changelog(self.name, schema, side=f"{side} rows")
            check_key(self.name, key, schema)
            check_row_key(self.name, key)
            check_complete(self.name, schema, side=f"the {side} rows")
        self.on.check(self.name, left, right)
        check_row_key(self.name, (*self.on.left, *self.on.right))
        ours, theirs = table_columns(left), table_columns(right)
        return TableJoinOperator(
            self.name,
            ChangelogInput(Rows(self.name, self.on.left, left_time, dict(left)), self.left_key, ours),
            ChangelogInput(
                Rows(self.name, self.on.right, right_time, dict(right)), self.right_key, theirs, name="right"
            ),
            self.on,
            self.how,
            joined_columns(self.name, self.on, ours, theirs, own=OWN),
            self.deleted,
        )

    @property
    def _identity(self) -> Mapping[str, object]:
        keys = {"left_key": list(self.left_key), "right_key": list(self.right_key)}
        return {"on": [list(pair) for pair in self.on.pairs], "how": self.how, **keys}

    @property
    def retracts(self) -> bool:
        """Updates and deletes retract rows."""
        return True

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words and as a bound."""
        moving = [
            f"{side} updates must come with update_before, by which a row leaves its old {', '.join(columns)}"
            for side, columns, key in (("left", self.on.left, self.left_key), ("right", self.on.right, self.right_key))
            if not set(columns) <= set(key)
        ]
        most = self.deleted.most(tables=2, moving=bool(moving))
        return "; ".join(["every row of both tables, until it is deleted", str(self.deleted), most, *moving])

    @property
    def _arguments(self) -> Mapping[str, object]:
        keys = {"left_key": said_key(self.left_key), "right_key": said_key(self.right_key)}
        return {"on": self.on.as_written, "how": self.how, **keys, **self.deleted.arguments}


def table_join(
    name: str,
    *,
    on: OnColumns,
    left_key: str | Sequence[str],
    right_key: str | Sequence[str],
    how: How = "inner",
    keep_deleted: Duration | None = WEEK,
) -> TableJoin:
    """The join of two tables as a changelog: inserts, updates and deletes of either are followed, foreign keys too.

    ``left_key`` and ``right_key`` are the tables' primary keys; the view's is both together. A deleted row is
    remembered for ``keep_deleted`` of event time (None: for ever).

    >>> table_join("orders", on={"customer": "id"}, left_key="order_id", right_key="id", how="left")
    hr.table_join('orders', on={'customer': 'id'}, how='left', left_key='order_id', right_key='id')
    """
    check_name("step", name)
    if how not in get_args(How):
        raise DefinitionError(
            "JOIN_UNKNOWN", f"step {name!r}: how={how!r} is not a join of tables. Use {', '.join(get_args(How))}."
        )
    left, right = key_columns(left_key, argument="left_key"), key_columns(right_key, argument="right_key")
    columns = join_key(on, step=name)
    return TableJoin(
        name=name,
        key=columns.left,
        on=columns,
        how=how,
        left_key=left,
        right_key=right,
        deleted=tombstone_retention(keep_deleted),
    )


def check_complete(step: str, schema: Mapping[str, pl.DataType], *, side: str = "the rows") -> None:
    """Rows of a changelog have all their values."""
    if UNCHANGED in schema:
        raise DefinitionError(
            "VALUES_NOT_SENT",
            f"step {step!r}: {side} have a column {UNCHANGED!r}, which names values that the database did not send. "
            "Put hr.materialize(..., before_images=True) before the step, which fills them in; if every value is sent, "
            f"drop the column with .drop({UNCHANGED!r}).",
        )
