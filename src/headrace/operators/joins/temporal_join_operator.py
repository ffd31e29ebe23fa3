"""The temporal joins at run time: a row takes the version of its key that was valid at its time, or the latest one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from headrace.changelog import CHANGE, DELETE, INSERT, UNCHANGED, UPDATE_AFTER, UPDATE_BEFORE
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.joins.matching import BoolArray
from headrace.operators.joins.temporal_versions import (
    KIND,
    ROW,
    TIME,
    TOMBSTONE,
    UNSENT,
    VERSION,
    VERSION_POSITION,
    TemporalJoinOperator,
    VersionedTable,
    fill_unsent,
)
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, ROW_NUMBER, in_order_of_arrival
from headrace.reports import WaitingRows
from headrace.wheel.operator import Applied, Due

_IS_ROW = pl.col(KIND) == ROW
_ORDER, _BEFORE, _NOW, _MATCH, _SINCE = "__order", "__before", "__now", "__match", "__since"
_Snapshot = tuple[pl.DataFrame, VersionedTable]
"""The rows of a slot, and the versions among them in order."""


@dataclass(frozen=True)
class TemporalJoinByEventTime(TemporalJoinOperator):
    """Joins each row with the version that was valid at its time.

    The state holds waiting rows, and of each key the version that is valid at the watermark and all later ones; with
    corrections also emitted rows and the versions that were valid then.
    """

    lateness: Lateness

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        return self.shared_schema

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        state = in_order_of_arrival(state)
        known = state.height
        stored = pl.concat([state, self._arrived(partials, second, bounds)])
        times, kinds = stored[TIME].to_numpy(), stored[KIND].to_numpy()
        is_row, new_versions = kinds == ROW, slice(known, known + second.height)
        waiting, corrects = is_row.copy(), self.second.corrects_for > 0
        if corrects:
            waiting[:known] &= times[:known] >= bounds.before
        firing = waiting & (times < bounds.fire)
        # Besides the keys of these rows, those with new versions, and those in which a version may expire now.
        first, last = bounds.before - self._reach, bounds.fire - self._reach
        changing = firing | (~is_row & (times >= first) & (times <= last))
        changing[new_versions] = True
        numbered = self._numbered(stored, stored.select(self.key).filter(changing))
        numbers = numbered[ROW_NUMBER].to_numpy()
        versions = VersionedTable.of(numbered.filter(~is_row[numbers]))
        everything, altered = fill_unsent(stored, versions.row_numbers, versions.keyed_times.keys, known=known)
        fired = numbered.filter(firing[numbers]).sort(TIME, maintain_order=True)
        output = self._joined(everything, fired[ROW_NUMBER], versions.as_of(fired, self.ttl))
        if corrects:
            output = output.with_columns(pl.lit(INSERT).alias(CHANGE))
        if corrects and (times[new_versions] < bounds.before).any():
            emitted_before = is_row[numbers] & (numbers < known) & (times[numbers] < bounds.before)
            before = stored, VersionedTable.of(numbered.filter(~is_row[numbers] & (numbers < known)))
            corrections = self._corrections(numbered.filter(emitted_before), before, (everything, versions), altered)
            output = pl.concat([corrections, output])
        held = int(waiting[:known].sum())
        return Applied(
            *self._retained(everything, known, bounds, altered, self._superseded(versions, stored.height, bounds)),
            output,
            dropped_second=len(versions.duplicates),
            waiting=WaitingRows(held, fired.height, held + partials.height - fired.height),
        )

    def due(self, bounds: TimeBounds) -> Due:
        """When a row is emitted, and when a version makes the one before it superfluous."""
        event = pl.col(TIME) + 1 + pl.when(_IS_ROW).then(0).otherwise(pl.lit(self._reach, pl.Int64))
        return Due(pl.when(event > bounds.fire).then(event), dead_at=self._expires)

    @property
    def _expires(self) -> pl.Expr:
        of_version = pl.when(pl.col(KIND) == TOMBSTONE).then(1).otherwise(pl.lit(self.ttl, pl.Int64)) + self._reach
        return pl.col(TIME) + pl.when(_IS_ROW).then(self.second.corrects_for + 1).otherwise(of_version)

    @property
    def _reach(self) -> int:
        """How far behind event time a row may be that still needs its version."""
        return max(self.second.corrects_for, self.lateness.correctable)

    def _superseded(self, versions: VersionedTable, rows: int, bounds: TimeBounds) -> BoolArray:
        """Which of so many rows are duplicates, or versions that others have superseded."""
        # A version is needed until the next one of its key is valid for every row that may still come.
        valid_until = versions.valid_until
        superseded = valid_until <= bounds.fire - self._reach
        if UNCHANGED not in self.second.change_columns:
            superseded |= valid_until == versions.keyed_times.times
        settled = np.zeros(rows, dtype=np.bool_)
        settled[versions.row_numbers[superseded]] = True
        settled[versions.duplicates] = True
        return settled

    def _corrections(self, rows: pl.DataFrame, before: _Snapshot, now: _Snapshot, altered: BoolArray) -> pl.DataFrame:
        """Retract emitted rows that would match another version now, and emit them again."""
        rows = rows.sort(TIME, maintain_order=True)
        was, is_now = before[1].as_of(rows, self.ttl).alias(_BEFORE), now[1].as_of(rows, self.ttl).alias(_NOW)
        differs = was.ne_missing(is_now) | pl.Series(altered).gather(is_now).fill_null(False)
        changed = rows.select(ROW_NUMBER).with_columns(was, is_now).filter(differs).with_row_index(_ORDER)
        updates = pl.lit(True) if self.how == "left" else pl.col(_BEFORE).is_not_null() & pl.col(_NOW).is_not_null()
        retraction = pl.when(updates).then(pl.lit(UPDATE_BEFORE)).otherwise(pl.lit(DELETE)).alias(CHANGE)
        result = pl.when(updates).then(pl.lit(UPDATE_AFTER)).otherwise(pl.lit(INSERT)).alias(CHANGE)
        corrections = []
        for everything, name, change in ((before[0], _BEFORE, retraction), (now[0], _NOW, result)):
            each = changed.select(_ORDER, ROW_NUMBER, name, change)
            each = each.drop_nulls(name) if self.how == "inner" else each
            joined = self._joined(everything, each[ROW_NUMBER], each[name])
            corrections.append(joined.with_columns(each[CHANGE], each[_ORDER]))
        return pl.concat(corrections).sort(_ORDER, maintain_order=True).drop(_ORDER)


@dataclass(frozen=True)
class TemporalJoinByArrival(TemporalJoinOperator):
    """Joins each row with the latest version of its key; versions of a batch come before its rows.

    The latest version, or its tombstone, has the highest position; without positions it arrived last.
    """

    tombstones_kept: int | None
    """How long a tombstone is kept, so that an older change does not undo the deletion; None: for ever."""

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Versions; values that were not sent have been filled in."""
        return {name: dtype for name, dtype in self.version_schema.items() if name != UNSENT}

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        state = in_order_of_arrival(state)
        everything = pl.concat([state, self._arrived(partials, second, bounds)], how="diagonal")
        numbered = self._numbered(everything, everything.select(self.key)[state.height :])
        ordered = self._in_order(numbered.filter(~_IS_ROW))
        latest = ordered.unique(KEY_NUMBER, keep="last", maintain_order=True)
        numbers, keys = (ordered[name].to_numpy().astype(np.int64) for name in (ROW_NUMBER, KEY_NUMBER))
        everything, altered = fill_unsent(everything, numbers, keys, known=state.height)
        versions = everything[: state.height + second.height].select(self.state_schema.keys())
        superseded = np.zeros(versions.height, dtype=np.bool_)
        superseded[numbers] = True
        superseded[latest[ROW_NUMBER].to_numpy()] = False
        return Applied(
            *self._retained(versions, state.height, bounds, altered, superseded),
            self._latest(everything, numbered.filter(_IS_ROW), latest),
            dropped_second=self._stale(ordered, state.height),
        )

    def due(self, bounds: TimeBounds) -> Due:
        return Due(dead_at=self._expires)

    @property
    def _expires(self) -> pl.Expr:
        tombstones, versions = (pl.lit(kept, pl.Int64) for kept in (self.tombstones_kept, self.ttl))
        return pl.col(TIME) + pl.when(pl.col(KIND) == TOMBSTONE).then(tombstones).otherwise(versions)

    def _in_order(self, versions: pl.DataFrame) -> pl.DataFrame:
        """Versions in their order; of duplicates the one that arrived first comes last, so that it is kept."""
        if not self._has_positions:
            return versions.sort(ARRIVAL)
        has_position = pl.col(VERSION_POSITION).is_not_null()
        rank = pl.when(has_position).then(pl.col(KIND)).otherwise(0)
        arrival = pl.when(has_position).then(-pl.col(ARRIVAL)).otherwise(pl.col(ARRIVAL))
        return versions.sort(pl.col(VERSION_POSITION), rank, arrival)

    def _stale(self, ordered: pl.DataFrame, known: int) -> int:
        """How many new versions are older than a known one, or duplicates."""
        if not self._has_positions:
            return 0
        is_known = pl.col(ROW_NUMBER) < known
        older = is_known.reverse().cum_max().reverse().over(KEY_NUMBER)
        is_last = pl.struct(KEY_NUMBER, VERSION_POSITION, KIND).is_last_distinct()
        duplicate = pl.col(VERSION_POSITION).is_not_null() & ~is_last
        return int(ordered.select((~is_known & (older | duplicate)).sum()).item())

    def _latest(self, everything: pl.DataFrame, rows: pl.DataFrame, latest: pl.DataFrame) -> pl.DataFrame:
        """Rows in the order of arrival, each with the version that it matches."""
        versions = latest.select(KEY_NUMBER, KIND, pl.col(ROW_NUMBER).alias(_MATCH), pl.col(TIME).alias(_SINCE))
        numbered = rows.select(KEY_NUMBER, TIME, ROW_NUMBER)
        found = numbered.join(versions, on=KEY_NUMBER, how="left", maintain_order="left")
        valid = pl.col(KIND) == VERSION
        if self.ttl is not None:
            valid &= pl.col(TIME) - pl.col(_SINCE) < self.ttl
        matches = found.select(pl.when(valid).then(_MATCH)).to_series()
        return self._joined(everything, found[ROW_NUMBER], matches)
