"""Which version each row meets: the newest of its key at or before a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.event_time.strategy import END
from headrace.operators.joins.matching import KeyedTimes, Places, match_ranges
from headrace.operators.joins.temporal_join_operator import ENDED, KIND, OF_VERSION, PLACED, TIME, UNSENT, VERSION
from headrace.operators.key_order import KEY_NUMBER

PLACE = "__place"
"""Where a row or a version is among all of a key group, which lie in the order of their arrival."""


@dataclass(frozen=True, slots=True)
class VersionedTable:
    """Versions by key, then time; at one time in the order of their positions, then of their arrival."""

    places: Places
    side: KeyedTimes
    valid: npt.NDArray[np.bool_]
    """False for the end of a version without another."""
    repeats: Places
    """The places of changes that were there already."""

    @classmethod
    def of(cls, versions: pl.DataFrame) -> VersionedTable:
        """Versions with their places and the numbers of their keys, in the order of arrival."""
        keys = versions[KEY_NUMBER].to_numpy().astype(np.int64)
        times, kinds = versions[TIME].to_numpy(), versions[KIND].to_numpy()
        order = np.lexsort((times, keys))
        repeated = np.zeros(len(order), dtype=np.bool_)
        if PLACED in versions.columns:
            # A change without a position is told from others by its arrival alone.
            position = versions[PLACED].rank("dense").fill_null(0).to_numpy()
            rank = np.where(position > 0, kinds, 0)
            order = np.lexsort((rank, position, times, keys))
            same = [each[order][1:] == each[order][:-1] for each in (keys, times, position, rank)]
            repeated[1:] = np.logical_and.reduce([*same, position[order][1:] > 0])
        places = versions[PLACE].to_numpy().astype(np.int64)
        chosen = order[~repeated]
        return cls(
            places[chosen], KeyedTimes(keys[chosen], times[chosen]), kinds[chosen] == VERSION, places[order[repeated]]
        )

    @property
    def following(self) -> Places:
        """For each the time of the next one of its key; the end of time for the last."""
        times = np.full(len(self.places), END, dtype=np.int64)
        same = self.side.keys[1:] == self.side.keys[:-1]
        times[:-1][same] = self.side.times[1:][same]
        return times

    def met_by(self, rows: KeyedTimes, ttl: int | None) -> pl.Series:
        """For each row the place of the version that it meets; null where there is none."""
        met = np.full(len(rows.keys), -1, dtype=np.int64)
        if len(met) and len(self.places):
            earliest = min(int(self.side.times.min()) - int(rows.times.max()), 0)
            found = match_ranges(rows, self.side, earliest, 0).last()
            some = found >= 0
            some[some] = self.valid[found[some]]
            if ttl is not None:
                some[some] = rows.times[some] - self.side.times[found[some]] < ttl
            met[some] = self.places[found[some]]
        places = pl.Series(met)
        return places.set(places < 0, None)


def side_of(rows: pl.DataFrame) -> KeyedTimes:
    """Rows by the numbers of their keys and their times."""
    return KeyedTimes(rows[KEY_NUMBER].to_numpy().astype(np.int64), rows[TIME].to_numpy())


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
