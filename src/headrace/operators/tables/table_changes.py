"""What the changes of a batch do to a table: their order, stale and repeated ones, and the rows before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import polars as pl

from headrace.changelog import CHANGE, CHANGELOG, DELETE, INSERT, POSITION, UPDATE_AFTER, UPDATE_BEFORE, sortable
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import TIME, join_by_key
from headrace.operators.tables.changelog_input import IS_UPSERT, ROW_POSITION
from headrace.schemas import MOMENT

CHANGED_AT = "changed_at"
VIEW_CHANGELOG: Mapping[str, pl.DataType] = {**CHANGELOG, CHANGED_AT: MOMENT}
"""The columns of a step's changelog that do not belong to its table."""
_KNOWN, _KNOWN_UPSERT = "__known_position", "__known_sets"


@dataclass(frozen=True)
class TableChanges:
    """The changes of a batch in the order of their positions, and what they do to the stored rows of a table."""

    stored: pl.DataFrame
    """Rows and tombstones before the batch."""
    key: tuple[str, ...]
    changes: pl.DataFrame
    stale: int
    duplicates: int

    @classmethod
    def of(cls, changes: pl.DataFrame, stored: pl.DataFrame, key: Sequence[str]) -> Self:
        """The changes that are newer than what is stored of their key; at one position, removals come first.

        >>> columns = ["id", "__position", "__sets", "__time"]
        >>> def rows(*given): return pl.DataFrame(given, schema=columns, orient="row")
        >>> given = rows((1, "5", True, 20), (1, "3", True, 20), (1, "5", False, 20), (2, "6", False, 30))
        >>> found = TableChanges.of(given, rows((1, "4", True, 10), (2, "4", True, 10), (3, "4", True, 10)), ["id"])
        >>> found.changes["id", "__position", "__sets"].rows(), found.stale, found.duplicates
        ([(1, '5', False), (1, '5', True), (2, '6', False)], 1, 0)
        >>> found.unchanged["id"].to_list(), found.old.rows(), found.new.rows()
        ([3], [(1, '4', True, 20), (2, '4', True, 30)], [(1, '5', True, 20)])
        """
        if changes.is_empty():
            return cls(stored, tuple(key), changes, 0, 0)
        last = stored.select(*key, pl.col(ROW_POSITION).alias(_KNOWN), pl.col(IS_UPSERT).alias(_KNOWN_UPSERT))
        with_known = join_by_key(changes, last, key, how="left", nulls_equal=True, maintain_order="left")
        same_position = pl.col(ROW_POSITION) == pl.col(_KNOWN)
        stale = (pl.col(ROW_POSITION) < pl.col(_KNOWN)) | (same_position & ~pl.col(IS_UPSERT) & pl.col(_KNOWN_UPSERT))
        repeated = same_position & (pl.col(IS_UPSERT) == pl.col(_KNOWN_UPSERT))
        judged = with_known.select(stale.fill_null(False).alias("stale"), repeated.fill_null(False).alias("repeated"))
        newer = with_known.drop(_KNOWN, _KNOWN_UPSERT).filter(~(judged["stale"] | judged["repeated"]))
        in_order = newer.sort(ROW_POSITION, IS_UPSERT, maintain_order=True)
        unique = in_order.unique([*key, ROW_POSITION, IS_UPSERT], keep="first", maintain_order=True)
        duplicates = int(judged["repeated"].sum()) + in_order.height - unique.height
        return cls(stored, tuple(key), unique, int(judged["stale"].sum()), duplicates)

    @property
    def dropped(self) -> int:
        return self.stale + self.duplicates

    @property
    def counters(self) -> dict[str, int]:
        return {"stale": self.stale, "duplicates": self.duplicates}

    @cached_property
    def last(self) -> pl.DataFrame:
        return self.changes.unique(self.key, keep="last", maintain_order=True)

    @cached_property
    def live(self) -> pl.DataFrame:
        return self.stored.filter(IS_UPSERT)

    @cached_property
    def unchanged(self) -> pl.DataFrame:
        return self.live.join(self.last, on=self.key, how="anti", nulls_equal=True, maintain_order="left")

    @cached_property
    def old(self) -> pl.DataFrame:
        """Changed rows as they were; their time is that of the change."""
        times = self.last.select(*self.key, TIME)
        old = join_by_key(self.live.drop(TIME), times, self.key, nulls_equal=True, maintain_order="left")
        return old.select(self.changes.columns)

    @cached_property
    def new(self) -> pl.DataFrame:
        return self.last.filter(IS_UPSERT)

    def rows(self, *, after: bool) -> pl.DataFrame:
        return pl.concat([self.unchanged, self.new if after else self.old])

    @property
    def removed_unknown(self) -> int:
        """Removals of rows that were not there."""
        removals = self.changes.unique(self.key, keep="first").filter(~pl.col(IS_UPSERT))
        return removals.join(self.stored, on=self.key, how="anti", nulls_equal=True).height


def row_changes(before: pl.DataFrame, after: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """What turns rows into others, all retractions first; a key that has a row before and after is updated."""
    changes = []
    for rows, others, update, otherwise in (
        (before, after, UPDATE_BEFORE, DELETE),
        (after, before, UPDATE_AFTER, INSERT),
    ):
        known = others.select(*key, pl.lit(update).alias(CHANGE))
        found = join_by_key(rows.select(key), known, key, how="left", nulls_equal=True, maintain_order="left")
        changes.append(rows.with_columns(found[CHANGE].fill_null(otherwise)))
    return pl.concat(changes)


def view_changes(before: pl.DataFrame, after: pl.DataFrame, key: Sequence[str], bounds: TimeBounds) -> pl.DataFrame:
    """What a batch changes in a view."""
    # One position per batch is enough: a row of the view is removed and added at most once in it.
    position = sortable(pl.lit(bounds.batch)).alias(POSITION)
    return row_changes(before, after, key).with_columns(position, pl.col(TIME).cast(MOMENT).alias(CHANGED_AT))
