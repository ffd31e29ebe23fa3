"""The materialize step and its operator: the current table of a changelog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, DELETE, INSERT, POSITION, UNCHANGED, UPDATE_AFTER
from headrace.durations import Duration
from headrace.event_time.record import TimeBounds
from headrace.keys import key_argument, key_columns
from headrace.operators.rows import Rows, join_by_key
from headrace.operators.tables.changelog_input import (
    IS_UPSERT,
    LAST_CHANGE,
    ROW_POSITION,
    WEEK,
    ChangelogInput,
    ChangelogOperator,
    ChangelogStep,
    table_columns,
    tombstone_retention,
)
from headrace.operators.tables.table_changes import TableChanges, row_changes
from headrace.stability import stable
from headrace.wheel.operator import Applied, Operator

_SOURCE, _ROW, _LIFE, _UPDATE = "__source", "__row", "__life", "__update"


@dataclass(frozen=True, kw_only=True, repr=False)
class Materialize(ChangelogStep):
    """The current table of a changelog."""

    kind = "materialize"

    before_images: bool = False

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        if UNCHANGED in schema and schema[UNCHANGED] != pl.List(pl.String()):
            raise self._wrong(
                "COLUMN_RESERVED",
                f"column {UNCHANGED!r} of a changelog is ARRAY<STRING> and names the columns whose "
                f"values were not sent, but here it is {schema[UNCHANGED]}. Rename the column.",
            )
        columns = {name: dtype for name, dtype in schema.items() if name not in CHANGELOG}
        changelog = ChangelogInput(Rows(self.name, self.key, time, dict(schema)), self.key, columns)
        return MaterializeOperator(self.name, changelog, self.tombstones, self.before_images)

    @property
    def _identity(self) -> Mapping[str, object]:
        return {"key": list(self.key), "before_images": self.before_images}

    @property
    def state_description(self) -> str:
        row = "the row itself" if self.before_images else "the row itself where changes name unchanged columns"
        bound = self.tombstones.upper_bound(tables=1)
        return f"the last position of each key in the table, and {row}; {self.tombstones}; {bound}"

    @property
    def _arguments(self) -> Mapping[str, object]:
        images = {"before_images": True} if self.before_images else {}
        return {"key": key_argument(self.key), **images, **self.tombstones.arguments}


@stable
def materialize(
    name: str, *, key: str | Sequence[str], before_images: bool = False, keep_deleted: Duration | None = WEEK
) -> Materialize:
    """The current table of a changelog, as changes for a sink with ``upsert_on=key``; drops stale and repeated ones.

    With ``before_images`` every update comes with its before image and every delete has all columns. A deleted key is
    remembered for ``keep_deleted`` of event time, so that an older change does not bring it back.

    >>> materialize("customers", key="customer_id")
    hr.materialize('customers', key='customer_id')
    """
    columns, tombstones = key_columns(key, needed_by=name), tombstone_retention(keep_deleted)
    return Materialize(name=name, key=columns, tombstones=tombstones, before_images=before_images)


@dataclass(frozen=True)
class MaterializeOperator(ChangelogOperator):
    """Keeps the last position of each key, with the row itself where changes do not bring whole rows."""

    before_images: bool

    @property
    def output_time(self) -> str:
        return self.changelog.rows.time

    @cached_property
    def _table(self) -> dict[str, pl.DataType]:
        return table_columns(self.changelog.rows.schema)

    @cached_property
    def _values(self) -> dict[str, pl.DataType]:
        return {name: dtype for name, dtype in self._table.items() if name not in self.key}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Key and last change; the row too where a later change may need it."""
        values = self._values if self.before_images or UNCHANGED in self.changelog.columns else {}
        return {**self.changelog.rows.keys, **LAST_CHANGE, **values}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self._table, **CHANGELOG}

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        table = TableChanges.of(partials, state, self.key)
        counters, last = table.counters, table.last
        if UNCHANGED in self.changelog.columns:
            last, unknown = fill_unchanged(table.changes, state, key=self.key, columns=list(self._values))
            counters["unknown_values"] = unknown
        return Applied(
            *self.retained(last.select(self.state_schema.keys()), bounds),
            self._output(table.live, last),
            dropped=table.dropped,
            counters=counters,
        )

    def _output(self, live: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
        """One change of every key that the batch changed, or two with before images."""
        last = last.rename({ROW_POSITION: POSITION})
        if self.before_images:
            old = join_by_key(live, last.select(*self.key, POSITION), self.key, nulls_equal=True, maintain_order="left")
            before, after = (rows.select(*self._table, POSITION) for rows in (old, last.filter(IS_UPSERT)))
            return row_changes(before, after, self.key).select(self.output_schema.keys())
        was_live = live.select(*self.key, pl.lit(UPDATE_AFTER).alias(_UPDATE))
        with_known = join_by_key(last, was_live, self.key, how="left", nulls_equal=True, maintain_order="left")
        changed = with_known.filter(pl.col(IS_UPSERT) | pl.col(_UPDATE).is_not_null())
        change = pl.when(IS_UPSERT).then(pl.col(_UPDATE).fill_null(INSERT)).otherwise(pl.lit(DELETE))
        return changed.select(*self._table, change.alias(CHANGE), POSITION)


def fill_unchanged(
    changes: pl.DataFrame, known: pl.DataFrame, *, key: Sequence[str], columns: Sequence[str]
) -> tuple[pl.DataFrame, int]:
    """The last change of every key with the values that were not sent, and how many values are unknown (null).

    Values are not carried beyond a delete, but an update's before image, which has the same position, fills its row.

    >>> stored = {"id": [1], "__sets": [True]}
    >>> known = pl.DataFrame({**stored, "__position": ["1"], "text": ["long"]})
    >>> changes = pl.DataFrame({**stored, "__position": ["2"], "text": [None], "unchanged": [["text"]]})
    >>> last, unknown = fill_unchanged(changes, known, key=["id"], columns=["text"])
    >>> last["text"].to_list(), unknown
    (['long'], 0)
    """
    begins = ~pl.col(IS_UPSERT).shift() & (pl.col(ROW_POSITION) != pl.col(ROW_POSITION).shift())
    life = begins.fill_null(False).cum_sum().over(list(key)).alias(_LIFE)
    rows = pl.concat([known, changes], how="diagonal_relaxed").with_row_index(_ROW).with_columns(life)
    unknown = 0
    for name in columns:
        missing = pl.col(UNCHANGED).list.contains(name).fill_null(False)
        source = pl.when(missing).then(None).otherwise(pl.col(_ROW)).forward_fill().over(*key, _LIFE)
        found = rows.select(source.alias(_SOURCE), pl.col(IS_UPSERT))
        rows = rows.with_columns(rows[name].gather(found[_SOURCE]).alias(name))
        unknown += found.slice(known.height).select((pl.col(_SOURCE).is_null() & pl.col(IS_UPSERT)).sum()).item()
    last = rows.slice(known.height).unique(list(key), keep="last", maintain_order=True)
    return last.drop(_ROW, _LIFE, UNCHANGED), unknown
