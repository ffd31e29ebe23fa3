"""One side of a join of tables in a batch: which rows changed, what they were, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from headrace.operators.key_order import join_by_key
from headrace.operators.tables.changes import SETS, TIME
from headrace.operators.tables.order import Ordered, in_order

_CHANGED_AT = "__changed_at"


@dataclass(frozen=True, slots=True)
class Side:
    """Rows of the join keys that a batch touches; only live ones, except in ``last``."""

    still: pl.DataFrame
    """Rows that the batch left alone."""
    old: pl.DataFrame
    """Rows that it changed, as they were; their time is that of the change."""
    new: pl.DataFrame
    """Rows that it changed or brought, as they are."""
    last: pl.DataFrame
    """The last change of every row that has one."""
    ordered: Ordered
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


def side_of(known: pl.DataFrame, changes: pl.DataFrame, identity: Sequence[str]) -> Side:
    """What changes do to the rows that are known; both have the same columns.

    >>> columns = ["id", "__position", "__sets", "__time"]
    >>> def rows(*given): return pl.DataFrame(given, schema=columns, orient="row")
    >>> side = side_of(rows((1, "1", True, 10), (2, "2", True, 10)), rows((1, "3", False, 20)), ["id"])
    >>> side.still["id"].to_list(), side.old.rows(), side.new.rows()
    ([2], [(1, '1', True, 20)], [])
    """
    by = list(identity)
    if changes.is_empty():
        return Side(known.filter(SETS), changes, changes, changes, Ordered(changes, 0, 0), 0)
    ordered = in_order(changes, known, by)
    last = ordered.last(by)
    live = known.filter(SETS)
    when = last.select(*by, pl.col(TIME).alias(_CHANGED_AT))
    old = join_by_key(live, when, by, nulls_equal=True, maintain_order="left")
    removals = ordered.changes.unique(by, keep="first", maintain_order=True).filter(~pl.col(SETS))
    return Side(
        live.join(when, on=by, how="anti", nulls_equal=True, maintain_order="left"),
        old.with_columns(pl.col(_CHANGED_AT).alias(TIME)).drop(_CHANGED_AT),
        last.filter(SETS),
        last,
        ordered,
        removals.join(known, on=by, how="anti", nulls_equal=True).height,
    )
