"""The table join at run time: two tables in the state, and the changes that a batch makes to their joined view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, DELETE, INSERT, POSITION, UPDATE_AFTER, UPDATE_BEFORE, sortable
from headrace.event_time.record import TimeBounds
from headrace.operators.joins.join_columns import JoinedColumns, JoinKey
from headrace.operators.rows import MAX_CHUNKS, join_by_key
from headrace.operators.tables.changelog_input import (
    CHANGED_AT,
    IS_UPSERT,
    LACKS_BEFORE,
    LAST_CHANGE,
    TIME,
    ChangelogInput,
    ChangelogOperator,
    OrderedChanges,
    ordered_changes,
)
from headrace.schemas import MOMENT
from headrace.wheel.key_groups import key_hash
from headrace.wheel.operator import Applied

TableJoinHow = Literal["inner", "left", "full"]
RIGHT, HASH = "__right", "__hash"
_CHANGED_AT, _OTHER_TIME = "__changed_at", "__other_time"


@dataclass(frozen=True, slots=True)
class TableDelta:
    """What a batch does to one table, in the join keys that it touches; only live rows, except in ``last``."""

    unchanged: pl.DataFrame
    """Rows that the batch did not change."""
    old: pl.DataFrame
    """Changed rows as they were; their time is that of the change."""
    new: pl.DataFrame
    """Changed and inserted rows as they are now."""
    last: pl.DataFrame
    """The last change of every changed row."""
    ordered: OrderedChanges
    removed_unknown: int
    """Removals of rows that were not there."""

    def changed(self, *, after: bool) -> pl.DataFrame:
        """Changed rows as they are after the batch, or as they were before it."""
        return self.new if after else self.old

    def rows(self, *, after: bool) -> pl.DataFrame:
        """All rows after or before the batch."""
        return pl.concat([self.unchanged, self.changed(after=after)])


def table_delta(stored: pl.DataFrame, changes: pl.DataFrame, identity: Sequence[str]) -> TableDelta:
    """What changes do to stored rows; both have the same columns.

    >>> columns = ["id", "__position", "__sets", "__time"]
    >>> def rows(*given): return pl.DataFrame(given, schema=columns, orient="row")
    >>> delta = table_delta(rows((1, "1", True, 10), (2, "2", True, 10)), rows((1, "3", False, 20)), ["id"])
    >>> delta.unchanged["id"].to_list(), delta.old.rows(), delta.new.rows()
    ([2], [(1, '1', True, 20)], [])
    """
    by = list(identity)
    live = stored.filter(IS_UPSERT)
    if changes.is_empty():
        return TableDelta(live, changes, changes, changes, OrderedChanges(changes, 0, 0), 0)
    ordered = ordered_changes(changes, stored, by)
    last = ordered.last(by)
    changed_at = last.select(*by, pl.col(TIME).alias(_CHANGED_AT))
    old = join_by_key(live, changed_at, by, nulls_equal=True, maintain_order="left")
    removals = ordered.changes.unique(by, keep="first", maintain_order=True).filter(~pl.col(IS_UPSERT))
    return TableDelta(
        live.join(changed_at, on=by, how="anti", nulls_equal=True, maintain_order="left"),
        old.with_columns(pl.col(_CHANGED_AT).alias(TIME)).drop(_CHANGED_AT),
        last.filter(IS_UPSERT),
        last,
        ordered,
        removals.join(stored, on=by, how="anti", nulls_equal=True).height,
    )


@dataclass(frozen=True, slots=True)
class JoinedView:
    """The join of two tables; only rows that involve a changed row are computed. Null equals nothing."""

    on: tuple[str, ...]
    left: tuple[str, ...]
    """Columns of the left table, without the key."""
    right: tuple[str, ...]
    how: TableJoinHow

    def affected(self, left: TableDelta, right: TableDelta, *, after: bool) -> pl.DataFrame:
        """Rows of the view after the batch that may be new or different, or those before it that they replace."""
        columns = (*self.on, *self.left, *self.right, TIME)
        empty = pl.DataFrame(schema={name: left.unchanged.schema[name] for name in columns})
        changed, others = left.changed(after=after), right.rows(after=after)
        pairs = [(changed, others), (left.unchanged, right.changed(after=after))]
        return pl.concat([empty, *self._matches(pairs), *self._unmatched(left, right, after=after)])

    def _matches(self, sides: Sequence[tuple[pl.DataFrame, pl.DataFrame]]) -> Iterator[pl.DataFrame]:
        """Matching rows, in any order: no row of the view occurs twice."""
        for left, right in sides:
            if not left.is_empty() and not right.is_empty():
                ours = left.select(*self.on, *self.left, TIME)
                theirs = right.select(*self.on, *self.right, pl.col(TIME).alias(_OTHER_TIME))
                later = pl.max_horizontal(TIME, _OTHER_TIME).alias(TIME)
                yield join_by_key(ours, theirs, self.on).select(*self.on, *self.left, *self.right, later)

    def _unmatched(self, left: TableDelta, right: TableDelta, *, after: bool) -> Iterator[pl.DataFrame]:
        """Rows without a match, with nulls for the other table."""
        if self.how != "inner":
            yield self._without_match(left, right, self.left, self.right, after=after)
        if self.how == "full":
            yield self._without_match(right, left, self.right, self.left, after=after)

    def _without_match(
        self, table: TableDelta, other: TableDelta, ours: Sequence[str], missing: Sequence[str], *, after: bool
    ) -> pl.DataFrame:
        on = list(self.on)
        changed = table.changed(after=after).select(*on, *ours, TIME)
        # An unchanged row is affected only where the first row of its key was added or the last one removed.
        was, is_now = (other.rows(after=when).select(on).unique() for when in (False, True))
        turned = pl.concat([was.join(is_now, on=on, how="anti"), is_now.join(was, on=on, how="anti")])
        turned_at = other.last.join(turned, on=on, how="semi").group_by(on).agg(pl.col(TIME).max().alias(_OTHER_TIME))
        affected = pl.concat([changed, table.unchanged.join(turned, on=on, how="semi").select(*on, *ours, TIME)])
        unmatched = affected.join(is_now if after else was, on=on, how="anti")
        unmatched = join_by_key(unmatched, turned_at, on, how="left", maintain_order="left")
        nulls = [pl.lit(None, other.unchanged.schema[name]).alias(name) for name in missing]
        time = pl.max_horizontal(TIME, _OTHER_TIME).alias(TIME)
        return unmatched.with_columns(*nulls, time).select(*on, *self.left, *self.right, TIME)


@dataclass(frozen=True)
class TableJoinOperator(ChangelogOperator):
    """Keeps the rows of both tables by their join key.

    A state row is a row of one table, in the columns of the view, or its tombstone. A batch only looks at the rows of
    the join keys that it touches, which it finds by their stored hash.
    """

    second: ChangelogInput
    on: JoinKey
    how: TableJoinHow
    columns: JoinedColumns
    output_time = CHANGED_AT
    """The later event time of both rows."""

    @cached_property
    def view_key(self) -> tuple[str, ...]:
        """The primary key of the view: those of both tables, under the view's names."""
        left = tuple(self.columns.left.get(name, name) for name in self.changelog.row_key)
        names = {**self.columns.right, **self.on.left_of_right}
        return tuple(dict.fromkeys((*left, *(names[name] for name in self.second.row_key))))

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """A row of one table under one join key: a row that moves to another key leaves a tombstone under the old."""
        return tuple(dict.fromkeys((RIGHT, *self.on.left, *self.view_key)))

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {RIGHT: pl.Boolean(), HASH: pl.Int64(), **self.columns.schema, **LAST_CHANGE}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self.columns.schema, **CHANGELOG, CHANGED_AT: MOMENT}

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        ours = self._state_rows(partials.rename(dict(self.columns.left)), right=False)
        theirs = self._state_rows(second.rename({**self.on.left_of_right, **self.columns.right}), right=True)
        hashes = pl.concat([ours[HASH], theirs[HASH]]).unique()
        touching = state[HASH].is_in(hashes.implode()) if hashes.len() else pl.repeat(False, state.height, eager=True)
        touched = state.filter(touching)
        left = table_delta(touched.filter(~pl.col(RIGHT)), ours, self.identity)
        right = table_delta(touched.filter(RIGHT), theirs, self.identity)
        last = pl.concat([left.last, right.last])
        rest = touched.join(last, on=list(self.identity), how="anti", nulls_equal=True)
        kept = pl.concat([state.filter(~touching), rest, last])
        over = kept.select(self.tombstones.expired(bounds)).to_series()
        removed = kept.clear()
        if over.any():
            removed, kept = kept.filter(over), kept.filter(~over)
        return Applied(
            kept.rechunk() if kept.n_chunks() > MAX_CHUNKS else kept,
            last.filter(~self.tombstones.expired(bounds)),
            removed.select(self.identity),
            self._output(left, right, bounds) if last.height else pl.DataFrame(schema=self.output_schema),
            dropped=left.ordered.dropped,
            dropped_second=right.ordered.dropped,
            counters={
                "stale": left.ordered.stale + right.ordered.stale,
                "duplicates": left.ordered.duplicates + right.ordered.duplicates,
                "removed_unknown": left.removed_unknown + right.removed_unknown,
                "updates_without_before": int(partials[LACKS_BEFORE].sum()) + int(second[LACKS_BEFORE].sum()),
            },
        )

    def _state_rows(self, changes: pl.DataFrame, *, right: bool) -> pl.DataFrame:
        if changes.is_empty():
            return pl.DataFrame(schema=self.state_schema)
        hashes = pl.Series(HASH, key_hash(changes, self.on.left), dtype=pl.Int64)
        absent = self.columns.left_schema if right else self.columns.right_schema
        nulls = [pl.lit(None, dtype).alias(name) for name, dtype in absent.items()]
        return changes.with_columns(pl.lit(right).alias(RIGHT), hashes, *nulls).select(self.state_schema.keys())

    def _output(self, left: TableDelta, right: TableDelta, bounds: TimeBounds) -> pl.DataFrame:
        """The changes of the view, all retractions first."""
        view = JoinedView(self.on.left, tuple(self.columns.left_schema), tuple(self.columns.right_schema), self.how)
        removed, added = (view.affected(left, right, after=after) for after in (False, True))
        key = list(self.view_key)
        removed = removed.with_columns(_change(removed, added, key, UPDATE_BEFORE, DELETE))
        added = added.with_columns(_change(added, removed, key, UPDATE_AFTER, INSERT))
        # One position per batch is enough: a row of the view is removed and added at most once in it.
        position = sortable(pl.lit(bounds.batch)).alias(POSITION)
        return pl.concat([removed, added]).select(
            *self.columns.schema, CHANGE, position, pl.col(TIME).cast(MOMENT).alias(CHANGED_AT)
        )


def _change(rows: pl.DataFrame, others: pl.DataFrame, key: list[str], update: str, otherwise: str) -> pl.Series:
    """An update where the other rows have the same key."""
    known = others.select(*key, pl.lit(True).alias(CHANGE)).unique(key)
    found = join_by_key(rows.select(key), known, key, how="left", nulls_equal=True, maintain_order="left")
    change = pl.when(pl.col(CHANGE)).then(pl.lit(update)).otherwise(pl.lit(otherwise))
    return found.select(change.alias(CHANGE)).to_series()
