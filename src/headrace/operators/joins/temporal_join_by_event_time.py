"""The temporal join by event time: a row waits until both watermarks have passed it, then takes its version."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from headrace.changelog import CHANGE, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import END
from headrace.operators.joins.matching import BoolArray, Int64Array, KeyedTimes, match_ranges
from headrace.operators.joins.temporal_join_operator import (
    KIND,
    ROW,
    TIME,
    TOMBSTONE,
    VERSION,
    VERSION_POSITION,
    TemporalJoinOperator,
    earlier,
    fill_unsent,
    upserts,
)
from headrace.operators.rows import (
    ARRIVAL,
    KEY_NUMBER,
    MAX_CHUNKS,
    ROW_NUMBER,
    in_order_of_arrival,
    next_arrival,
    with_key_numbers,
)
from headrace.reports import WaitingRows
from headrace.wheel.operator import Applied, Combined, Due

_IS_ROW = pl.col(KIND) == ROW
_ORDER, _BEFORE, _NOW = "__order", "__before", "__now"


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


_Snapshot = tuple[pl.DataFrame, VersionedTable]
"""The rows of a key group, and the versions among them in order."""


@dataclass(frozen=True)
class TemporalJoinByEventTime(TemporalJoinOperator):
    """Joins each row with the version that was valid at its time.

    The state holds waiting rows, and of each key the version that is valid at the watermark and all later ones. With
    corrections it also holds rows that were emitted, and the versions that were valid then.
    """

    lateness: Lateness
    corrects_for: int
    """How long emitted rows are kept, so that late versions can correct them."""

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        return self.layout.state_schema

    @cached_property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        late = ("late", self.lateness, self.layout.rows)
        late_versions = (self.second.late_output, self.second.lateness, self.layout.versions)
        sides = (late, late_versions)
        return {
            name: rows.late_schema for name, lateness, rows in sides if lateness is not None and lateness.keeps_rows
        }

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        given = self.layout.rows
        is_late = given.is_late(bounds, correctable=self.lateness.correctable)
        return self.accept(*given.split_late(rows, bounds, is_late))

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        """Add versions and rows, emit the rows that event time has passed, and drop what no row can need."""
        state = in_order_of_arrival(state)
        known, following = state.height, next_arrival(state)
        arrived = self.layout.versions_in(second, following)
        new_rows = self.layout.rows_in(partials, following + second.height)
        stored = pl.concat([state, arrived, new_rows])
        times, kinds = stored[TIME].to_numpy(), stored[KIND].to_numpy()
        is_row, new_versions = kinds == ROW, slice(known, known + second.height)
        waiting = is_row.copy()
        if self.corrects_for:
            waiting[:known] &= times[:known] >= bounds.before
        firing = waiting & (times < bounds.fire)
        numbered = self._with_keys_of(stored, self._changing(times, is_row, new_versions, bounds) | firing)
        numbers = numbered[ROW_NUMBER].to_numpy()
        versions = VersionedTable.of(numbered.filter(~is_row[numbers]))
        everything, altered = fill_unsent(stored, versions.row_numbers, versions.keyed_times.keys, known=known)
        fired = numbered.filter(firing[numbers]).sort(TIME, maintain_order=True)
        outputs = [self._emitted(everything, fired, versions.as_of(keyed_times(fired), self.ttl))]
        if self.corrects_for and (times[new_versions] < bounds.before).any():
            emitted_before = is_row[numbers] & (numbers < known) & (times[numbers] < bounds.before)
            before = stored, VersionedTable.of(numbered.filter(~is_row[numbers] & (numbers < known)))
            now = everything, versions
            outputs.insert(0, self._corrections(numbered.filter(emitted_before), before, now, altered))
        expired = self._expired(times, kinds, versions, bounds)
        held = int(waiting[:known].sum())
        kept = everything.filter(~expired) if expired.any() else everything
        return Applied(
            kept.rechunk() if kept.n_chunks() > MAX_CHUNKS else kept,
            upserts(everything, altered, expired, known=known),
            state.select(ARRIVAL).filter(expired[:known]),
            pl.concat(outputs) if len(outputs) > 1 else outputs[0],
            dropped_second=len(versions.duplicates),
            waiting=WaitingRows(held, fired.height, held + new_rows.height - fired.height),
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest moment at which a row is emitted or expires, or a version may expire.

        A version ahead of event time will supersede the one before it, if there is one: looking for it costs more.
        """
        row = (
            pl.when(pl.col(TIME) >= bounds.fire).then(pl.col(TIME) + 1).otherwise(pl.col(TIME) + self.corrects_for + 1)
        )
        is_ahead = pl.col(TIME) >= earlier(bounds.fire, self._reach)
        life = pl.when(is_ahead).then(1).otherwise(pl.lit(self.ttl, pl.Int64))
        version = pl.col(TIME) + self._reach + life
        return Due(state.select(pl.when(_IS_ROW).then(row).otherwise(version).min()).item())

    @property
    def _reach(self) -> int:
        """How far behind event time a row may be that still needs its version."""
        return max(self.corrects_for, self.lateness.correctable)

    def _changing(self, times: Int64Array, is_row: BoolArray, new_versions: slice, bounds: TimeBounds) -> BoolArray:
        """New versions, and those whose predecessor may expire now."""
        changing = (
            ~is_row & (times >= earlier(bounds.before, self._reach)) & (times <= earlier(bounds.fire, self._reach))
        )
        changing[new_versions] = True
        return changing

    def _with_keys_of(self, everything: pl.DataFrame, chosen: BoolArray) -> pl.DataFrame:
        """All rows and versions with the keys of the chosen ones, numbered."""
        position = [VERSION_POSITION] if self.layout.has_positions else []
        narrow = everything.select(*self.key, TIME, KIND, *position).with_row_index(ROW_NUMBER)
        return with_key_numbers(narrow, self.key, of=everything.select(self.key).filter(chosen))

    def _expired(self, times: Int64Array, kinds: Int64Array, versions: VersionedTable, bounds: TimeBounds) -> BoolArray:
        settled = earlier(bounds.fire, self._reach)
        expired: BoolArray = (kinds == ROW) & (times < earlier(bounds.fire, self.corrects_for))
        expired |= (kinds == TOMBSTONE) & (times < settled)
        if self.ttl is not None:
            expired |= (kinds != ROW) & (times <= earlier(settled, self.ttl))
        # A version is needed until the next one of its key is valid for every row that may still come.
        valid_until = versions.valid_until
        superseded = valid_until <= settled
        if not self.layout.has_unsent:
            superseded |= valid_until == versions.keyed_times.times
        expired[versions.row_numbers[superseded]] = True
        expired[versions.duplicates] = True
        return expired

    def _emitted(self, everything: pl.DataFrame, rows: pl.DataFrame, versions: pl.Series) -> pl.DataFrame:
        """Rows with their versions, emitted for the first time."""
        numbers = rows[ROW_NUMBER]
        if self.how == "inner" and versions.has_nulls():
            numbers, versions = numbers.filter(versions.is_not_null()), versions.drop_nulls()
        joined = self.layout.joined(everything, numbers, versions)
        return joined.with_columns(pl.lit(INSERT).alias(CHANGE)) if self.corrects_for else joined

    def _corrections(self, rows: pl.DataFrame, before: _Snapshot, now: _Snapshot, altered: BoolArray) -> pl.DataFrame:
        """Retract emitted rows that would match another version now, and emit them again."""
        rows = rows.sort(TIME, maintain_order=True)
        times = keyed_times(rows)
        was, is_now = before[1].as_of(times, self.ttl).alias(_BEFORE), now[1].as_of(times, self.ttl).alias(_NOW)
        differs = was.ne_missing(is_now) | pl.Series(altered).gather(is_now).fill_null(False)
        changed = rows.select(ROW_NUMBER).with_columns(was, is_now).filter(differs).with_row_index(_ORDER)
        updates = pl.lit(True) if self.how == "left" else pl.col(_BEFORE).is_not_null() & pl.col(_NOW).is_not_null()
        retraction = pl.when(updates).then(pl.lit(UPDATE_BEFORE)).otherwise(pl.lit(DELETE)).alias(CHANGE)
        result = pl.when(updates).then(pl.lit(UPDATE_AFTER)).otherwise(pl.lit(INSERT)).alias(CHANGE)
        corrections = []
        for everything, name, change in ((before[0], _BEFORE, retraction), (now[0], _NOW, result)):
            each = changed.select(_ORDER, ROW_NUMBER, name, change)
            each = each.drop_nulls(name) if self.how == "inner" else each
            joined = self.layout.joined(everything, each[ROW_NUMBER], each[name])
            corrections.append(joined.with_columns(each[CHANGE], each[_ORDER]))
        return pl.concat(corrections).sort(_ORDER, maintain_order=True).drop(_ORDER)
