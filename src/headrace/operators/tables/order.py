"""Changes of a table in their order: what is stale or a repeat is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from headrace.operators.key_order import join_by_key
from headrace.operators.tables.changes import PLACE, SETS

_KNOWN, _KNOWN_SETS = "__known_position", "__known_sets"


@dataclass(frozen=True, slots=True)
class Ordered:
    """The changes of a batch that count, in the order of their positions, and how many do not."""

    changes: pl.DataFrame
    stale: int
    """Changes before the last that was taken of their key."""
    duplicates: int
    """Changes that were taken already."""

    @property
    def dropped(self) -> int:
        """Changes that do not count."""
        return self.stale + self.duplicates

    def last(self, key: Sequence[str]) -> pl.DataFrame:
        """The last change of every key."""
        return self.changes.unique(list(key), keep="last", maintain_order=True)


def in_order(changes: pl.DataFrame, known: pl.DataFrame, key: Sequence[str]) -> Ordered:
    """The changes that come after what is known of their key; of one position, what removes comes before what sets.

    An update's two rows may come in any order, because the place of each among a key's changes is in the row itself.

    >>> def rows(*given): return pl.DataFrame(given, schema=["id", "__position", "__sets"], orient="row")
    >>> found = in_order(rows((1, "5", True), (1, "3", True), (1, "5", False)), rows((1, "4", True)), ["id"])
    >>> found.changes.rows(), found.stale, found.duplicates
    ([(1, '5', False), (1, '5', True)], 1, 0)
    """
    last = known.select(*key, pl.col(PLACE).alias(_KNOWN), pl.col(SETS).alias(_KNOWN_SETS))
    beside = join_by_key(changes, last, key, how="left", nulls_equal=True, maintain_order="left")
    same_place = pl.col(PLACE) == pl.col(_KNOWN)
    stale = (pl.col(PLACE) < pl.col(_KNOWN)) | (same_place & ~pl.col(SETS) & pl.col(_KNOWN_SETS))
    repeated = same_place & (pl.col(SETS) == pl.col(_KNOWN_SETS))
    judged = beside.select(stale.fill_null(False).alias("stale"), repeated.fill_null(False).alias("repeated"))
    counting = beside.drop(_KNOWN, _KNOWN_SETS).filter(~(judged["stale"] | judged["repeated"]))
    placed = counting.sort(PLACE, SETS, maintain_order=True)
    fresh = placed.unique([*key, PLACE, SETS], keep="first", maintain_order=True)
    repeats = int(judged["repeated"].sum()) + placed.height - fresh.height
    return Ordered(fresh, int(judged["stale"].sum()), repeats)
