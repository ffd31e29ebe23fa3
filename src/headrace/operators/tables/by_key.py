"""Joins by a key in which not-a-number is a value like others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

_SAME = "__same"


def joined_by_key(
    left: pl.DataFrame,
    right: pl.DataFrame,
    key: Sequence[str],
    *,
    how: Literal["inner", "left"],
    nulls_equal: bool = True,
    maintain_order: Literal["none", "left"] = "left",
) -> pl.DataFrame:
    """The rows of two frames that have the same key.

    >>> one = pl.DataFrame({"id": [float("nan")]})
    >>> joined_by_key(one, one.with_columns(n=1), ["id"], how="inner")["n"].to_list()
    [1]
    """
    on = list(key)
    if len(on) > 1 or not left.schema[on[0]].is_float():
        return left.join(right, on=on, how=how, nulls_equal=nulls_equal, maintain_order=maintain_order)
    # Polars (2.1) finds no NaN when it joins by one column that it knows to be sorted; by two columns it does.
    ours, theirs = (frame.with_columns(pl.lit(0).alias(_SAME)) for frame in (left, right))
    met = ours.join(theirs, on=[*on, _SAME], how=how, nulls_equal=nulls_equal, maintain_order=maintain_order)
    return met.drop(_SAME)
