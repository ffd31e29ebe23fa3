"""Chains of rows and sessions: which of them begin before others end, and where a chain grows too long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

FIRST, END = "__first", "__end"
"""The time of the first row of a part of a session, and where it ends if no row follows, in microseconds."""
CHAIN = "__chain"
_PLACE, _REACHED = "__place_in_chain", "__reached"
_APART = 2**64
"""Further apart than any two times, so that the parts of two keys never touch."""


def chained(parts: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Parts in the order of key and time, with the number of the chain to which each belongs.

    >>> parts = pl.DataFrame({"key": ["a", "a", "b", "a"], FIRST: [1, 20, 2, 3], END: [20, 32, 14, 16]})
    >>> chained(parts, ["key"]).select("key", FIRST, CHAIN).rows()
    [('a', 1, 0), ('a', 3, 0), ('a', 20, 1), ('b', 2, 2)]
    """
    ordered = parts.sort(*key, FIRST)
    others = (pl.col(name).ne_missing(pl.col(name).shift()) for name in key)
    # One running maximum over all keys is ten times as fast as one for each, so every key gets a time of its own.
    moved = pl.any_horizontal(pl.lit(False), *others).cum_sum().cast(pl.Int128) * _APART
    apart = moved + pl.col(FIRST) >= (moved + pl.col(END)).cum_max().shift()
    return ordered.with_columns(apart.fill_null(False).cum_sum().alias(CHAIN))


def cut(chains: pl.DataFrame, length: int, gap: int) -> pl.DataFrame:
    """Chains cut so that no row is ``length`` or more behind the first of its chain, from the first part on.

    Every part ends ``gap`` behind its last row.

    >>> parts = pl.DataFrame({FIRST: [0, 4, 9, 12, 30], END: [5, 9, 14, 17, 35], CHAIN: [0, 0, 0, 0, 1]})
    >>> cut(parts, length=9, gap=5)[CHAIN].to_list()
    [0, 0, 1, 1, 2]
    """
    moved = pl.col(CHAIN).cast(pl.Int128) * _APART
    reached = ((moved + pl.col(END)).cum_max() - moved - gap).cast(pl.Int64)
    numbered = chains.with_row_index(_PLACE).with_columns(reached.alias(_REACHED))
    ends = numbered.unique([CHAIN, _REACHED], keep="first", maintain_order=True)
    following = numbered.select(CHAIN, (pl.col(FIRST) + length).alias(_REACHED)).join_asof(
        ends.select(CHAIN, _REACHED, _PLACE), on=_REACHED, by=CHAIN, strategy="forward", check_sortedness=False
    )[_PLACE]
    jumps = following.cast(pl.Int64).fill_null(-1).to_numpy()
    begin = numbered.select(pl.col(CHAIN).ne_missing(pl.col(CHAIN).shift()).arg_true()).to_series().to_numpy()
    is_begin = np.zeros(numbered.height, dtype=np.bool_)
    while len(begin):
        is_begin[begin] = True
        begin = jumps[begin]
        begin = begin[begin >= 0]
    pieces = (pl.Series(is_begin).cum_sum() - 1).alias(CHAIN)
    return numbered.with_columns(pieces).drop(_PLACE, _REACHED)
