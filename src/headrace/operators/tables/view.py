"""The rows of a joined view that a batch takes away and brings: only those that a changed row is part of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.operators.key_order import join_by_key
from headrace.operators.tables.changes import TIME
from headrace.operators.tables.sides import Side

How = Literal["inner", "left", "full"]
_OTHER_TIME = "__other_time"


@dataclass(frozen=True, slots=True)
class View:
    """Rows of the left table beside those of the right that have the same key; null equals nothing."""

    on: tuple[str, ...]
    left: tuple[str, ...]
    """Columns of the left table, without the key."""
    right: tuple[str, ...]
    how: How

    def taken(self, left: Side, right: Side) -> pl.DataFrame:
        """Rows of the view before the batch that may not be there any more, or have changed."""
        pairs = [(left.old, right.before), (left.still, right.old)]
        return pl.concat([self._nothing(left), *self._pairs(pairs), *self._alone(left, right, after=False)])

    def brought(self, left: Side, right: Side) -> pl.DataFrame:
        """Rows of the view after the batch that may not have been there before, or have changed."""
        pairs = [(left.new, right.after), (left.still, right.new)]
        return pl.concat([self._nothing(left), *self._pairs(pairs), *self._alone(left, right, after=True)])

    def _nothing(self, left: Side) -> pl.DataFrame:
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

    def _alone(self, left: Side, right: Side, *, after: bool) -> list[pl.DataFrame]:
        """Rows beside which there is none of the other table, with nulls in its place."""
        found = []
        if self.how != "inner":
            found.append(self._without(left, right, self.left, self.right, after=after))
        if self.how == "full":
            found.append(self._without(right, left, self.right, self.left, after=after))
        return found

    def _without(
        self, side: Side, other: Side, ours: Sequence[str], missing: Sequence[str], *, after: bool
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
