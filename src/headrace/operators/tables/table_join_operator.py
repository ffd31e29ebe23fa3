"""One side of a join of tables in a batch: which rows changed, what they were, and what they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, DELETE, INSERT, POSITION, UPDATE_AFTER, UPDATE_BEFORE, sortable
from headrace.event_time.record import TimeBounds
from headrace.operators.joins.join_columns import JoinedColumns, JoinKey
from headrace.operators.rows import join_by_key
from headrace.operators.tables.changelog_input import (
    ALONE,
    CHANGED_AT,
    ORDERED,
    SETS,
    TIME,
    ChangelogInput,
    OrderedChanges,
    TombstoneRetention,
    ordered_changes,
)
from headrace.schemas import MOMENT
from headrace.wheel.key_groups import key_hash
from headrace.wheel.operator import Applied, Combined, Due

_CHANGED_AT = "__changed_at"


@dataclass(frozen=True, slots=True)
class TableDelta:
    """Rows of the join keys that a batch touches; only live ones, except in ``last``."""

    still: pl.DataFrame
    """Rows that the batch left alone."""
    old: pl.DataFrame
    """Rows that it changed, as they were; their time is that of the change."""
    new: pl.DataFrame
    """Rows that it changed or brought, as they are."""
    last: pl.DataFrame
    """The last change of every row that has one."""
    ordered: OrderedChanges
    unknown: int
    """Rows that were taken away though they were not there."""

    @property
    def before(self) -> pl.DataFrame:
        """All rows as they were."""
        return pl.concat([self.still, self.old])

    @property
    def after(self) -> pl.DataFrame:
        """All rows as they are."""
        return pl.concat([self.still, self.new])


def table_delta(known: pl.DataFrame, changes: pl.DataFrame, identity: Sequence[str]) -> TableDelta:
    """What changes do to the rows that are known; both have the same columns.

    >>> columns = ["id", "__position", "__sets", "__time"]
    >>> def rows(*given): return pl.DataFrame(given, schema=columns, orient="row")
    >>> side = table_delta(rows((1, "1", True, 10), (2, "2", True, 10)), rows((1, "3", False, 20)), ["id"])
    >>> side.still["id"].to_list(), side.old.rows(), side.new.rows()
    ([2], [(1, '1', True, 20)], [])
    """
    by = list(identity)
    if changes.is_empty():
        return TableDelta(known.filter(SETS), changes, changes, changes, OrderedChanges(changes, 0, 0), 0)
    ordered = ordered_changes(changes, known, by)
    last = ordered.last(by)
    live = known.filter(SETS)
    when = last.select(*by, pl.col(TIME).alias(_CHANGED_AT))
    old = join_by_key(live, when, by, nulls_equal=True, maintain_order="left")
    removals = ordered.changes.unique(by, keep="first", maintain_order=True).filter(~pl.col(SETS))
    return TableDelta(
        live.join(when, on=by, how="anti", nulls_equal=True, maintain_order="left"),
        old.with_columns(pl.col(_CHANGED_AT).alias(TIME)).drop(_CHANGED_AT),
        last.filter(SETS),
        last,
        ordered,
        removals.join(known, on=by, how="anti", nulls_equal=True).height,
    )


How = Literal["inner", "left", "full"]
_OTHER_TIME = "__other_time"


@dataclass(frozen=True, slots=True)
class JoinedView:
    """Rows of the left table beside those of the right that have the same key; null equals nothing."""

    on: tuple[str, ...]
    left: tuple[str, ...]
    """Columns of the left table, without the key."""
    right: tuple[str, ...]
    how: How

    def taken(self, left: TableDelta, right: TableDelta) -> pl.DataFrame:
        """Rows of the view before the batch that may not be there any more, or have changed."""
        pairs = [(left.old, right.before), (left.still, right.old)]
        return pl.concat([self._nothing(left), *self._pairs(pairs), *self._alone(left, right, after=False)])

    def brought(self, left: TableDelta, right: TableDelta) -> pl.DataFrame:
        """Rows of the view after the batch that may not have been there before, or have changed."""
        pairs = [(left.new, right.after), (left.still, right.new)]
        return pl.concat([self._nothing(left), *self._pairs(pairs), *self._alone(left, right, after=True)])

    def _nothing(self, left: TableDelta) -> pl.DataFrame:
        columns = (*self.on, *self.left, *self.right, TIME)
        return pl.DataFrame(schema={name: left.still.schema[name] for name in columns})

    def _pairs(self, sides: Sequence[tuple[pl.DataFrame, pl.DataFrame]]) -> Iterator[pl.DataFrame]:
        """Rows that meet; their order does not matter, because no row of the view comes twice."""
        for left, right in sides:
            if not left.is_empty() and not right.is_empty():
                ours = left.select(*self.on, *self.left, TIME)
                theirs = right.select(*self.on, *self.right, pl.col(TIME).alias(_OTHER_TIME))
                later = pl.max_horizontal(TIME, _OTHER_TIME).alias(TIME)
                met = join_by_key(ours, theirs, self.on)
                yield met.select(*self.on, *self.left, *self.right, later)

    def _alone(self, left: TableDelta, right: TableDelta, *, after: bool) -> list[pl.DataFrame]:
        """Rows beside which there is none of the other table, with nulls in its place."""
        found = []
        if self.how != "inner":
            found.append(self._without(left, right, self.left, self.right, after=after))
        if self.how == "full":
            found.append(self._without(right, left, self.right, self.left, after=after))
        return found

    def _without(
        self, side: TableDelta, other: TableDelta, ours: Sequence[str], missing: Sequence[str], *, after: bool
    ) -> pl.DataFrame:
        on = list(self.on)
        now = other.after if after else other.before
        changed = (side.new if after else side.old).select(*on, *ours, TIME)
        # A row that did not change is affected only where the first row of its key came or the last one went.
        was, become = other.before.select(on).unique(), other.after.select(on).unique()
        turned = pl.concat([was.join(become, on=on, how="anti"), become.join(was, on=on, how="anti")])
        when = other.last.join(turned, on=on, how="semi").group_by(on).agg(pl.col(TIME).max().alias(_OTHER_TIME))
        affected = pl.concat([changed, side.still.join(turned, on=on, how="semi").select(*on, *ours, TIME)])
        alone = affected.join(now.select(on), on=on, how="anti")
        alone = join_by_key(alone, when, on, how="left", maintain_order="left")
        nulls = [pl.lit(None, other.still.schema[name]).alias(name) for name in missing]
        time = pl.max_horizontal(TIME, _OTHER_TIME).alias(TIME)
        return alone.with_columns(*nulls, time).select(*on, *self.left, *self.right, TIME)


RIGHT, HASH = "__right", "__hash"
MOST_CHUNKS = 16


@dataclass(frozen=True)
class TableJoinOperator:
    """Keeps the rows of both tables by the key they are joined on.

    A state row is a row of one table, in the columns of the view, or the memory of a deleted one. Only the rows of the
    keys that a batch touches are looked at: they are found by the hash that lies beside each.
    """

    name: str
    left: ChangelogInput
    second: ChangelogInput
    on: JoinKey
    how: How
    columns: JoinedColumns
    deleted: TombstoneRetention

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

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Changes of the left table travel one by one."""
        return self.left.combine(rows, bounds)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Changes stay as they are."""
        return self.left.merge(partials)

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        """Take the changes of both tables, and say what they did to the view."""
        ours = self._placed(partials.rename(dict(self.columns.left)), right=False)
        renamed = {**dict(zip(self.on.right, self.on.left, strict=True)), **self.columns.right}
        theirs = self._placed(second.rename(renamed), right=True)
        hashes = pl.concat([ours[HASH], theirs[HASH]]).unique()
        touching = state[HASH].is_in(hashes.implode()) if hashes.len() else pl.repeat(False, state.height, eager=True)
        touched = state.filter(touching)
        left = table_delta(touched.filter(~pl.col(RIGHT)), ours, self.identity)
        right = table_delta(touched.filter(RIGHT), theirs, self.identity)
        last = pl.concat([left.last, right.last])
        aside = touched.join(last, on=list(self.identity), how="anti", nulls_equal=True)
        kept = pl.concat([state.filter(~touching), aside, last])
        over = kept.select(self.deleted.over(bounds)).to_series()
        if over.any():
            gone, kept = kept.filter(over), kept.filter(~over)
        else:
            gone = kept.clear()
        return Applied(
            kept.rechunk() if kept.n_chunks() > MOST_CHUNKS else kept,
            last.filter(~self.deleted.over(bounds)),
            gone.select(self.identity),
            self._output(left, right, bounds) if last.height else pl.DataFrame(schema=self.output_schema),
            dropped=left.ordered.dropped,
            dropped_second=right.ordered.dropped,
            counters={
                "stale": left.ordered.stale + right.ordered.stale,
                "duplicates": left.ordered.duplicates + right.ordered.duplicates,
                "removed_unknown": left.unknown + right.unknown,
                "updates_without_before": int(partials[ALONE].sum()) + int(second[ALONE].sum()),
            },
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
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

    def _output(self, left: TableDelta, right: TableDelta, bounds: TimeBounds) -> pl.DataFrame:
        """What was in the view and is not, or not so, comes before what takes its place."""
        view = JoinedView(self.on.left, tuple(self.columns.left_schema), tuple(self.columns.right_schema), self.how)
        taken, brought = view.taken(left, right), view.brought(left, right)
        key = list(self.view_key)
        taken = taken.with_columns(_change(taken, brought, key, UPDATE_BEFORE, DELETE))
        brought = brought.with_columns(_change(brought, taken, key, UPDATE_AFTER, INSERT))
        # One position for a batch: a row of the view is taken and brought at most once in it.
        position = sortable(pl.lit(bounds.batch)).alias(POSITION)
        return pl.concat([taken, brought]).select(
            *self.columns.schema, CHANGE, position, pl.col(TIME).cast(MOMENT).alias(CHANGED_AT)
        )


def _change(rows: pl.DataFrame, others: pl.DataFrame, key: list[str], updated: str, otherwise: str) -> pl.Series:
    """An update where the other rows have the key too."""
    known = others.select(*key, pl.lit(True).alias(CHANGE)).unique(key)
    beside = join_by_key(rows.select(key), known, key, how="left", nulls_equal=True, maintain_order="left")
    found = pl.when(pl.col(CHANGE)).then(pl.lit(updated)).otherwise(pl.lit(otherwise))
    return beside.select(found.alias(CHANGE)).to_series()
