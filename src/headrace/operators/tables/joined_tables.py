"""Two tables that are followed by their changes, and the changes of their joined view."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, DELETE, INSERT, POSITION, UPDATE_AFTER, UPDATE_BEFORE, sortable
from headrace.event_time.record import Edge
from headrace.operators.joins.columns import JoinedColumns
from headrace.operators.joins.on import On
from headrace.operators.key_order import join_by_key
from headrace.operators.tables.changes import ALONE, CHANGED_AT, ORDERED, TIME, ChangeIntake
from headrace.operators.tables.deleted import Deleted
from headrace.operators.tables.sides import Side, side_of
from headrace.operators.tables.view import How, View
from headrace.schemas import MOMENT
from headrace.wheel.key_hash import key_hash
from headrace.wheel.operator import Applied, Combined, Due

RIGHT, HASH = "__right", "__hash"
MOST_CHUNKS = 16


@dataclass(frozen=True)
class JoinedTables:
    """Keeps the rows of both tables by the key they are joined on.

    A state row is a row of one table, in the columns of the view, or the memory of a deleted one. Only the rows of the
    keys that a batch touches are looked at: they are found by the hash that lies beside each.
    """

    name: str
    left: ChangeIntake
    second: ChangeIntake
    on: On
    how: How
    columns: JoinedColumns
    deleted: Deleted

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the left table on which it is joined."""
        return self.left.key

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Changes of the left table."""
        return self.left.partial_schema

    @cached_property
    def _row_keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The primary keys as the view names them."""
        left = tuple(self.columns.left.get(name, name) for name in self.left.row_key)
        given = dict(zip(self.on.right, self.on.left, strict=True))
        return left, tuple(given.get(name) or self.columns.right[name] for name in self.second.row_key)

    @cached_property
    def view_key(self) -> tuple[str, ...]:
        """What tells rows of the view apart: both primary keys."""
        left, right = self._row_keys
        return tuple(dict.fromkeys((*left, *right)))

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """A row of one table under one join key: when that changes, the row is known under the old one too."""
        return tuple(dict.fromkeys((RIGHT, *self.on.left, *self.view_key)))

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Which table, the view's columns of it, and its last change."""
        return {RIGHT: pl.Boolean(), HASH: pl.Int64(), **self.columns.schema, **ORDERED}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """A changelog of the view."""
        return {**self.columns.schema, **CHANGELOG, CHANGED_AT: MOMENT}

    @property
    def output_time(self) -> str:
        """The later event time of what changed."""
        return CHANGED_AT

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """No change is late."""
        return {}

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Changes of the left table travel one by one."""
        return self.left.combine(rows, edge)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Changes stay as they are."""
        return self.left.merge(partials)

    def apply_both(self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, edge: Edge) -> Applied:
        """Take the changes of both tables, and say what they did to the view."""
        ours = self._placed(partials.rename(dict(self.columns.left)), right=False)
        renamed = {**dict(zip(self.on.right, self.on.left, strict=True)), **self.columns.right}
        theirs = self._placed(second.rename(renamed), right=True)
        hashes = pl.concat([ours[HASH], theirs[HASH]]).unique()
        touching = state[HASH].is_in(hashes.implode()) if hashes.len() else pl.repeat(False, state.height, eager=True)
        touched = state.filter(touching)
        left = side_of(touched.filter(~pl.col(RIGHT)), ours, self.identity)
        right = side_of(touched.filter(RIGHT), theirs, self.identity)
        last = pl.concat([left.last, right.last])
        aside = touched.join(last, on=list(self.identity), how="anti", nulls_equal=True)
        kept = pl.concat([state.filter(~touching), aside, last])
        over = kept.select(self.deleted.over(edge)).to_series()
        if over.any():
            gone, kept = kept.filter(over), kept.filter(~over)
        else:
            gone = kept.clear()
        return Applied(
            kept.rechunk() if kept.n_chunks() > MOST_CHUNKS else kept,
            last.filter(~self.deleted.over(edge)),
            gone.select(self.identity),
            self._output(left, right, edge) if last.height else pl.DataFrame(schema=self.output_schema),
            dropped=left.ordered.dropped,
            dropped_second=right.ordered.dropped,
            told={
                "stale": left.ordered.stale + right.ordered.stale,
                "duplicates": left.ordered.duplicates + right.ordered.duplicates,
                "removed_unknown": left.unknown + right.unknown,
                "updates_without_before": int(partials[ALONE].sum()) + int(second[ALONE].sum()),
            },
        )

    def due(self, state: pl.DataFrame, edge: Edge) -> Due:
        """The earliest moment at which a deletion is forgotten."""
        return self.deleted.due(state)

    def _placed(self, changes: pl.DataFrame, *, right: bool) -> pl.DataFrame:
        """Changes of one table as rows of state."""
        if changes.is_empty():
            return pl.DataFrame(schema=self.state_schema)
        hashes = pl.Series(HASH, key_hash(changes, self.on.left), dtype=pl.Int64)
        absent = self.columns.left_schema if right else self.columns.right_schema
        nulls = [pl.lit(None, dtype).alias(name) for name, dtype in absent.items()]
        return changes.with_columns(pl.lit(right).alias(RIGHT), hashes, *nulls).select(self.state_schema.keys())

    def _output(self, left: Side, right: Side, edge: Edge) -> pl.DataFrame:
        """What was in the view and is not, or not so, comes before what takes its place."""
        view = View(self.on.left, tuple(self.columns.left_schema), tuple(self.columns.right_schema), self.how)
        taken, brought = view.taken(left, right), view.brought(left, right)
        key = list(self.view_key)
        taken = taken.with_columns(_change(taken, brought, key, UPDATE_BEFORE, DELETE))
        brought = brought.with_columns(_change(brought, taken, key, UPDATE_AFTER, INSERT))
        # One position for a batch: a row of the view is taken and brought at most once in it.
        position = sortable(pl.lit(edge.batch)).alias(POSITION)
        return pl.concat([taken, brought]).select(
            *self.columns.schema, CHANGE, position, pl.col(TIME).cast(MOMENT).alias(CHANGED_AT)
        )


def _change(rows: pl.DataFrame, others: pl.DataFrame, key: list[str], updated: str, otherwise: str) -> pl.Series:
    """An update where the other rows have the key too."""
    known = others.select(*key, pl.lit(True).alias(CHANGE)).unique(key)
    beside = join_by_key(rows.select(key), known, key, how="left", nulls_equal=True, maintain_order="left")
    found = pl.when(pl.col(CHANGE)).then(pl.lit(updated)).otherwise(pl.lit(otherwise))
    return beside.select(found.alias(CHANGE)).to_series()
