"""The versions of each key in order: which one a row matches, and values that a version left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from headrace.event_time.strategy import END
from headrace.operators.joins.matching import BoolArray, Int64Array, KeyedTimes, match_ranges
from headrace.operators.joins.temporal_join_operator import (
    KIND,
    OF_VERSION,
    TIME,
    TOMBSTONE,
    UNSENT,
    VERSION,
    VERSION_POSITION,
)
from headrace.operators.rows import KEY_NUMBER, ROW_NUMBER

_LIFE = "__life"


@dataclass(frozen=True, slots=True)
class VersionedTable:
    """Versions by key, then time; at the same time by position, then arrival."""

    row_numbers: Int64Array
    keyed_times: KeyedTimes
    valid: BoolArray
    """False for a tombstone."""
    duplicates: Int64Array
    """The row numbers of changes that were there already."""

    @classmethod
    def of(cls, versions: pl.DataFrame) -> VersionedTable:
        """Order versions that have row numbers and key numbers and are in the order of arrival."""
        keys = versions[KEY_NUMBER].to_numpy().astype(np.int64)
        times, kinds = versions[TIME].to_numpy(), versions[KIND].to_numpy()
        order = np.lexsort((times, keys))
        repeated = np.zeros(len(order), dtype=np.bool_)
        if VERSION_POSITION in versions.columns:
            # Changes without a position are only ordered by their arrival, so none is a duplicate.
            position = versions[VERSION_POSITION].rank("dense").fill_null(0).to_numpy()
            rank = np.where(position > 0, kinds, 0)
            order = np.lexsort((rank, position, times, keys))
            same = [each[order][1:] == each[order][:-1] for each in (keys, times, position, rank)]
            repeated[1:] = np.logical_and.reduce([*same, position[order][1:] > 0])
        numbers = versions[ROW_NUMBER].to_numpy().astype(np.int64)
        chosen = order[~repeated]
        keyed_times = KeyedTimes(keys[chosen], times[chosen])
        return cls(numbers[chosen], keyed_times, kinds[chosen] == VERSION, numbers[order[repeated]])

    @property
    def valid_until(self) -> Int64Array:
        """The time of the next version of the key; the end of time for the last."""
        times = np.full(len(self.row_numbers), END, dtype=np.int64)
        same = self.keyed_times.keys[1:] == self.keyed_times.keys[:-1]
        times[:-1][same] = self.keyed_times.times[1:][same]
        return times

    def as_of(self, rows: KeyedTimes, ttl: int | None) -> pl.Series:
        """The row number of the version that is valid at each row's time; null without one."""
        matches = np.full(len(rows.keys), -1, dtype=np.int64)
        if len(matches) and len(self.row_numbers):
            earliest = min(int(self.keyed_times.times.min()) - int(rows.times.max()), 0)
            found = match_ranges(rows, self.keyed_times, earliest, 0).one("last")
            some = found >= 0
            some[some] = self.valid[found[some]]
            if ttl is not None:
                some[some] = rows.times[some] - self.keyed_times.times[found[some]] < ttl
            matches[some] = self.row_numbers[found[some]]
        numbers = pl.Series(matches)
        return numbers.set(numbers < 0, None)


def keyed_times(rows: pl.DataFrame) -> KeyedTimes:
    """The key numbers and times of rows."""
    return KeyedTimes(rows[KEY_NUMBER].to_numpy().astype(np.int64), rows[TIME].to_numpy())


def fill_unsent(
    everything: pl.DataFrame, versions: Int64Array, keys: Int64Array, *, known: int
) -> tuple[pl.DataFrame, BoolArray]:
    """Give versions the values that were not sent because they stayed the same, and tell which rows that altered.

    ``versions`` are the row numbers of the versions in order, ``keys`` the numbers of their keys. The first ``known``
    rows were filled before: they keep their values unless a version before them now has others. A tombstone ends a
    key's life, and values are not carried beyond it, except from the old row of an update to the new one.

    >>> stored = {"__time": [1, 2], "__kind": [2, 2], "__unsent": [None, ["text"]], "__version.text": ["long", None]}
    >>> rows, _ = fill_unsent(pl.DataFrame(stored), np.array([0, 1]), np.array([7, 7]), known=0)
    >>> rows["__version.text"].to_list()
    ['long', 'long']
    """
    altered = np.zeros(everything.height, dtype=np.bool_)
    unsent = everything[UNSENT].gather(versions) if UNSENT in everything.columns else pl.Series([], dtype=pl.Null)
    if unsent.null_count() == unsent.len():
        return everything, altered
    moment = VERSION_POSITION if VERSION_POSITION in everything.columns else TIME
    ordered = everything.select(pl.col(UNSENT, KIND, moment).gather(versions))
    ordered = ordered.with_columns(pl.Series(KEY_NUMBER, keys), pl.Series(ROW_NUMBER, versions))
    # A life of a key ends with a tombstone, except with that of an update, at whose moment the new row comes.
    is_other = (pl.col(moment) != pl.col(moment).shift()).fill_null(True)
    begins = ((pl.col(KIND).shift() == TOMBSTONE) & is_other).fill_null(False)
    ordered = ordered.with_columns(begins.cum_sum().over(KEY_NUMBER).alias(_LIFE))
    for name in unsent.drop_nulls().explode().drop_nulls().unique():
        column = f"{OF_VERSION}{name}"
        if column not in everything.columns:
            continue
        sent = ~pl.col(UNSENT).list.contains(name).fill_null(False)
        filled_before = pl.when(pl.col(_LIFE) == 0).then(_last_in_life(sent | (pl.col(ROW_NUMBER) < known)))
        found = ordered.select(pl.coalesce(_last_in_life(sent), filled_before, -1)).to_series()
        sources = np.arange(everything.height)
        sources[versions] = found.to_numpy()
        values = everything[column].gather(pl.Series(sources).set(pl.Series(sources < 0), None))
        altered |= values.ne_missing(everything[column]).to_numpy()
        everything = everything.with_columns(values)
    return everything, altered


def upserts(everything: pl.DataFrame, altered: BoolArray, expired: BoolArray, *, known: int) -> pl.DataFrame:
    """The rows to write to the state: new ones, and known ones that were altered."""
    new = everything[known:].filter(~expired[known:])
    revised = altered[:known] & ~expired[:known]
    return pl.concat([everything[:known].filter(revised), new]) if revised.any() else new


def _last_in_life(condition: pl.Expr) -> pl.Expr:
    """The last version of the key's life, up to and including this one, that satisfies a condition."""
    return pl.when(condition).then(ROW_NUMBER).forward_fill().over(KEY_NUMBER, _LIFE)
