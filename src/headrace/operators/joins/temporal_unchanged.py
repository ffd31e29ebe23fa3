"""Values of a version that were not sent because they stayed the same: those of the version before, if none ended."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.operators.joins.pairs import Places
from headrace.operators.joins.temporal_layout import ENDED, KIND, OF_VERSION, PLACED, TIME, UNSENT

_KEY, _PLACE, _LIFE = "__key", "__place", "__life"


def carried(
    everything: pl.DataFrame, places: Places, keys: Places, *, known: int
) -> tuple[pl.DataFrame, npt.NDArray[np.bool_]]:
    """Everything with the values that versions did not bring, and which of its rows have become others by that.

    ``places`` are those of the versions in order, with the numbers of their ``keys``. The first ``known`` rows have
    been through this before: what they were given then they keep, unless a version before them says better. What has
    ended gives nothing, except the old row of an update to the new one.

    >>> told = {"__time": [1, 2], "__kind": [2, 2], "__unsent": [None, ["text"]], "__version.text": ["long", None]}
    >>> rows, _ = carried(pl.DataFrame(told), np.array([0, 1]), np.array([7, 7]), known=0)
    >>> rows["__version.text"].to_list()
    ['long', 'long']
    """
    altered = np.zeros(everything.height, dtype=np.bool_)
    unsent = everything[UNSENT].gather(places) if UNSENT in everything.columns else pl.Series([], dtype=pl.Null)
    if unsent.null_count() == unsent.len():
        return everything, altered
    moment = PLACED if PLACED in everything.columns else TIME
    versions = everything.select(pl.col(UNSENT, KIND, moment).gather(places))
    versions = versions.with_columns(pl.Series(_KEY, keys), pl.Series(_PLACE, places)).with_columns(_life(moment))
    for name in unsent.drop_nulls().explode().drop_nulls().unique():
        column = f"{OF_VERSION}{name}"
        if column not in everything.columns:
            continue
        sent = ~pl.col(UNSENT).list.contains(name).fill_null(False)
        given_before = pl.when(pl.col(_LIFE) == 0).then(_last(sent | (pl.col(_PLACE) < known)))
        found = versions.select(pl.coalesce(_last(sent), given_before, -1)).to_series()
        sources = np.arange(everything.height)
        sources[places] = found.to_numpy()
        values = everything[column].gather(pl.Series(sources).set(pl.Series(sources < 0), None))
        altered |= values.ne_missing(everything[column]).to_numpy()
        everything = everything.with_columns(values)
    return everything, altered


def news(
    everything: pl.DataFrame, altered: npt.NDArray[np.bool_], gone: npt.NDArray[np.bool_], *, known: int
) -> pl.DataFrame:
    """What is to be written of the state: rows that are new, and known ones that have become others."""
    new = everything[known:].filter(~gone[known:])
    revised = altered[:known] & ~gone[:known]
    return pl.concat([everything[:known].filter(revised), new]) if revised.any() else new


def _life(moment: str) -> pl.Expr:
    """How many ends are before each version of its key; that of an update's old row is none for the new one."""
    is_other = (pl.col(moment) != pl.col(moment).shift()).fill_null(True)
    begins = (pl.col(KIND).shift() == ENDED) & is_other
    return begins.fill_null(False).cum_sum().over(_KEY).alias(_LIFE)


def _last(condition: pl.Expr) -> pl.Expr:
    """The place of the last version in this life of the key, up to and with this one, that fulfils a condition."""
    return pl.when(condition).then(_PLACE).forward_fill().over(_KEY, _LIFE)
