"""Values that a database did not send because they stayed the same, taken from the row before."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from headrace.changelog import UNCHANGED
from headrace.operators.tables.changes import PLACE, SETS

_SOURCE, _ROW, _LIFE = "__source", "__row", "__life"


def filled(
    changes: pl.DataFrame, known: pl.DataFrame, *, key: Sequence[str], columns: Sequence[str]
) -> tuple[pl.DataFrame, int]:
    """The last change of every key with all its values, and how many values nobody knows: those are null.

    ``changes`` are in order, and ``known`` are the rows before them. What is deleted gives nothing to what comes after
    it; the old row of an update has the position of the new one, and gives it what was not sent.

    >>> placed = {"id": [1], "__sets": [True]}
    >>> known = pl.DataFrame({**placed, "__position": ["1"], "text": ["long"]})
    >>> changes = pl.DataFrame({**placed, "__position": ["2"], "text": [None], "unchanged": [["text"]]})
    >>> last, unknown = filled(changes, known, key=["id"], columns=["text"])
    >>> last["text"].to_list(), unknown
    (['long'], 0)
    """
    begins = ~pl.col(SETS).shift() & (pl.col(PLACE) != pl.col(PLACE).shift())
    life = begins.fill_null(False).cum_sum().over(list(key)).alias(_LIFE)
    rows = pl.concat([known, changes], how="diagonal_relaxed").with_row_index(_ROW).with_columns(life)
    unknown = 0
    for name in columns:
        missing = pl.col(UNCHANGED).list.contains(name).fill_null(False)
        source = pl.when(missing).then(None).otherwise(pl.col(_ROW)).forward_fill().over(*key, _LIFE)
        found = rows.select(source.alias(_SOURCE), pl.col(SETS))
        rows = rows.with_columns(rows[name].gather(found[_SOURCE]).alias(name))
        unknown += found.slice(known.height).select((pl.col(_SOURCE).is_null() & pl.col(SETS)).sum()).item()
    last = rows.slice(known.height).unique(list(key), keep="last", maintain_order=True)
    return last.drop(_ROW, _LIFE, UNCHANGED), unknown
