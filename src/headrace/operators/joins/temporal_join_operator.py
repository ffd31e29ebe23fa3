"""The temporal joins at run time: a row takes the version of its key that was valid at its time, or the latest one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from headrace.changelog import CHANGE, DELETE, INSERT, UNCHANGED, UPDATE_AFTER, UPDATE_BEFORE
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import END
from headrace.operators.event_time_buffer import EventTimeBuffer, event_time_order
from headrace.operators.joins.matching import BoolArray
from headrace.operators.joins.temporal_versions import (
    KIND,
    OF_ROW,
    ROW,
    TOMBSTONE,
    UNSENT,
    TemporalJoinOperator,
    VersionedTable,
    fill_unsent,
)
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, ROW_NUMBER, TIME, with_schema
from headrace.wheel.operator import Applied, Due

_IS_ROW = pl.col(KIND) == ROW
_ORDER, _BEFORE, _NOW = "__order", "__before", "__now"
_Snapshot = tuple[pl.DataFrame, VersionedTable]
"""The versions of a slot, and their order."""


@dataclass(frozen=True)
class TemporalJoinByEventTime(TemporalJoinOperator):
    """Joins each row with the version that was valid at its time.

    The state holds waiting rows, and of each key the version that is valid at the watermark and all later ones; with
    corrections also emitted rows and the versions that were valid then.
    """

    lateness: Lateness

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {**self.version_schema, **{f"{OF_ROW}{name}": self.rows.schema[name] for name in self.columns.left}}

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        rows, stored = state.filter(_IS_ROW), state.filter(~_IS_ROW).select(self.version_schema.keys())
        known = stored.height
        buffer = EventTimeBuffer(self.state_schema, kept_for=self.second.corrects_for)
        buffered, stored = buffer.release(rows, self._as_rows(partials), bounds), self._with_new(stored, second, bounds)
        fired = buffered.rows[event_time_order(buffered.rows)]
        # Besides the keys of these rows, those with new versions, and those in which a version may expire now.
        times = stored[TIME].to_numpy()
        changing = (times >= bounds.before - self._reach) & (times <= bounds.fire - self._reach)
        changing[known:] = True
        keys = pl.concat([fired.select(self.key), stored.select(self.key).filter(changing)])
        numbered = self._numbered(stored, keys)
        versions = VersionedTable.of(numbered, KEY_NUMBER, TIME)
        everything, altered = fill_unsent(stored, versions.versions, known=known)
        of_fired = self._numbered(fired, keys)
        output = self._joined(fired, of_fired[ROW_NUMBER], everything, versions.as_of(of_fired, self.ttl))
        if self.second.corrects_for:
            output = output.with_columns(pl.lit(INSERT).alias(CHANGE))
            if (times[known:] < bounds.before).any():
                emitted = rows.filter(pl.col(TIME) < bounds.before).sort(TIME, ARRIVAL)
                before = stored, VersionedTable.of(numbered.filter(pl.col(ROW_NUMBER) < known), KEY_NUMBER, TIME)
                corrections = self._corrections(emitted, keys, before, (everything, versions), altered)
                output = pl.concat([corrections, output])
        settled = self._superseded(versions, stored.height, bounds)
        upserts, removed = self._retained(everything, known, bounds, altered, settled)
        return Applied(
            pl.concat([with_schema(upserts, self.state_schema), buffered.stored]),
            removed,
            output,
            dropped_second=versions.duplicates.height,
            waiting=buffered.counts,
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
        """Which of these rows are duplicates, or versions that others have superseded."""
        # A version is needed until the next one of its key is valid for every row that may still come.
        is_last = (pl.col(KEY_NUMBER) != pl.col(KEY_NUMBER).shift(-1)).fill_null(True)
        valid_until = pl.when(is_last).then(END).otherwise(pl.col(TIME).shift(-1))
        superseded = valid_until <= bounds.fire - self._reach
        if UNCHANGED not in self.second.change_columns:
            superseded |= valid_until == pl.col(TIME)
        settled = np.zeros(rows, dtype=np.bool_)
        for numbered in (versions.versions.filter(superseded), versions.duplicates):
            settled[numbered[ROW_NUMBER].to_numpy()] = True
        return settled

    def _corrections(
        self, rows: pl.DataFrame, keys: pl.DataFrame, before: _Snapshot, now: _Snapshot, altered: BoolArray
    ) -> pl.DataFrame:
        """Retract emitted rows that would match another version now, and emit them again."""
        numbered = self._numbered(rows, keys)
        was, is_now = (versions.as_of(numbered, self.ttl) for _, versions in (before, now))
        differs = was.ne_missing(is_now) | pl.Series(altered).gather(is_now).fill_null(False)
        both = numbered.select(ROW_NUMBER, was.alias(_BEFORE), is_now.alias(_NOW))
        changed = both.filter(differs).with_row_index(_ORDER)
        updates = pl.lit(True) if self.how == "left" else pl.col(_BEFORE).is_not_null() & pl.col(_NOW).is_not_null()
        retraction = pl.when(updates).then(pl.lit(UPDATE_BEFORE)).otherwise(pl.lit(DELETE)).alias(CHANGE)
        result = pl.when(updates).then(pl.lit(UPDATE_AFTER)).otherwise(pl.lit(INSERT)).alias(CHANGE)
        corrections = []
        for versions, name, change in ((before[0], _BEFORE, retraction), (now[0], _NOW, result)):
            each = changed.select(_ORDER, ROW_NUMBER, name, change)
            each = each.drop_nulls(name) if self.how == "inner" else each
            joined = self._joined(rows, each[ROW_NUMBER], versions, each[name])
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
        rows, stored = self._as_rows(partials), self._with_new(state, second, bounds)
        keys = pl.concat([rows.select(self.key), stored.select(self.key)[state.height :]])
        numbered, of_rows = self._numbered(stored, keys), self._numbered(rows, keys)
        versions = VersionedTable.of(numbered, KEY_NUMBER)
        everything, altered = fill_unsent(stored, versions.versions, known=state.height)
        everything = everything.select(self.state_schema.keys())
        superseded = np.zeros(everything.height, dtype=np.bool_)
        superseded[numbered[ROW_NUMBER].to_numpy()] = True
        superseded[versions.latest[ROW_NUMBER].to_numpy()] = False
        return Applied(
            *self._retained(everything, state.height, bounds, altered, superseded),
            self._joined(rows, of_rows[ROW_NUMBER], everything, versions.by_arrival(of_rows, self.ttl)),
            dropped_second=self._stale(versions, state.height),
        )

    def due(self, bounds: TimeBounds) -> Due:
        return Due(dead_at=self._expires)

    @property
    def _expires(self) -> pl.Expr:
        tombstones, versions = (pl.lit(kept, pl.Int64) for kept in (self.tombstones_kept, self.ttl))
        return pl.col(TIME) + pl.when(pl.col(KIND) == TOMBSTONE).then(tombstones).otherwise(versions)

    def _stale(self, versions: VersionedTable, known: int) -> int:
        """How many new versions are older than a known one, or duplicates."""
        is_known = pl.col(ROW_NUMBER) < known
        older = is_known.reverse().cum_max().reverse().over(KEY_NUMBER)
        return int(versions.versions.select((~is_known & older).sum()).item()) + versions.duplicates.height
