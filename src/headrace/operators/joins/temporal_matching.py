"""Which version each row meets: the newest of its key at or before a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.event_time.strategy import END
from headrace.operators.joins.pairs import Places, Side, ranges
from headrace.operators.joins.temporal_layout import KIND, PLACED, TIME, VERSION
from headrace.operators.key_order import KEY_NUMBER

PLACE = "__place"
"""Where a row or a version is among all of a key group, which lie in the order of their arrival."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions by key, then time; at one time in the order of their positions, then of their arrival."""

    places: Places
    side: Side
    valid: npt.NDArray[np.bool_]
    """False for the end of a version without another."""
    repeats: Places
    """The places of changes that were there already."""

    @classmethod
    def of(cls, versions: pl.DataFrame) -> Versions:
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
        return cls(places[chosen], Side(keys[chosen], times[chosen]), kinds[chosen] == VERSION, places[order[repeated]])

    @property
    def following(self) -> Places:
        """For each the time of the next one of its key; the end of time for the last."""
        times = np.full(len(self.places), END, dtype=np.int64)
        same = self.side.keys[1:] == self.side.keys[:-1]
        times[:-1][same] = self.side.times[1:][same]
        return times

    def met_by(self, rows: Side, ttl: int | None) -> pl.Series:
        """For each row the place of the version that it meets; null where there is none."""
        met = np.full(len(rows.keys), -1, dtype=np.int64)
        if len(met) and len(self.places):
            earliest = min(int(self.side.times.min()) - int(rows.times.max()), 0)
            found = ranges(rows, self.side, earliest, 0).last()
            some = found >= 0
            some[some] = self.valid[found[some]]
            if ttl is not None:
                some[some] = rows.times[some] - self.side.times[found[some]] < ttl
            met[some] = self.places[found[some]]
        places = pl.Series(met)
        return places.set(places < 0, None)


def side_of(rows: pl.DataFrame) -> Side:
    """Rows by the numbers of their keys and their times."""
    return Side(rows[KEY_NUMBER].to_numpy().astype(np.int64), rows[TIME].to_numpy())
