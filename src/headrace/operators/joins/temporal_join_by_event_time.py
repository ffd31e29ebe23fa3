"""A temporal join by event time: a row waits until time has passed it on both sides, then meets its version."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.changelog import CHANGE, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import Edge
from headrace.operators.arrival import ARRIVAL, in_order_of_arrival, next_arrival
from headrace.operators.joins.matching import Places
from headrace.operators.joins.temporal_join_operator import (
    ENDED,
    KIND,
    PLACED,
    ROW,
    TIME,
    TemporalJoinOperator,
    before,
    parted,
)
from headrace.operators.joins.versioned_table import PLACE, VersionedTable, carried, news, side_of
from headrace.operators.key_order import with_key_numbers
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined, Due, Holding

MOST_CHUNKS = 16
_IS_ROW = pl.col(KIND) == ROW
_ORDER, _THEN, _NOW = "__order", "__then", "__now"


@dataclass(frozen=True)
class TemporalJoinByEventTime(TemporalJoinOperator):
    """Joins each row with the version that was valid at its time.

    The state holds rows that wait, of each key the version that is valid where time is now, and all later ones. With
    corrections it reaches back further: rows that have left, and versions that were valid then.
    """

    lateness: Lateness
    corrects_for: int
    """How long rows that have left are kept, to be corrected by late versions."""

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Rows and versions beside each other."""
        return self.layout.state_schema

    @cached_property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """Late rows and late versions, when they are kept."""
        late = {"late": self.layout.rows.late_schema} if self.lateness.keeps_rows else {}
        versions = self.second.lateness
        kept = versions is not None and versions.keeps_rows
        return {**late, **({self.second.late_output: self.layout.versions.late_schema} if kept else {})}

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Set late rows aside; those that have no key can only leave unmatched."""
        given = self.layout.rows
        on_time, late = parted(given, rows, self.lateness, edge, refused=given.is_correction)
        accepted = on_time.drop_nulls(self.key) if self.how == "inner" else on_time
        partials = canonical(accepted, self.key).select(self.partial_schema.keys())
        return Combined(partials, late, accepted.height, dropped=on_time.height - accepted.height)

    def apply_both(self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, edge: Edge) -> Applied:
        """Take versions and rows in, emit the rows that time has passed, and forget what no row can need."""
        state = in_order_of_arrival(state)
        following = next_arrival(state)
        arrived = self.layout.versions_in(second, following)
        rows = self.layout.rows_in(partials, following + second.height)
        everything = pl.concat([state, arrived, rows])
        known, times = state.height, everything[TIME].to_numpy()
        kinds = everything[KIND].to_numpy()
        is_row = kinds == ROW
        waiting = is_row.copy()
        if self.corrects_for:
            waiting[:known] &= times[:known] >= edge.before
        leaving = waiting & (times < edge.fire)
        settled = before(edge.fire, self._reach)
        touched = ~is_row & (times >= before(edge.before, self._reach)) & (times <= settled)
        touched[known : known + arrived.height] = True
        numbered = self._numbered(everything, touched | leaving)
        places = numbered[PLACE].to_numpy()
        versions = VersionedTable.of(numbered.filter(~is_row[places]))
        as_left = everything
        everything, altered = carried(everything, versions.places, versions.side.keys, known=known)
        shown = numbered.filter(leaving[places]).sort(TIME, maintain_order=True)
        outputs = [self._emitted(everything, shown, versions.met_by(side_of(shown), self.ttl))]
        if self.corrects_for and (times[known : known + arrived.height] < edge.before).any():
            left = is_row[places] & (places < known) & (times[places] < edge.before)
            stood = ~is_row[places] & (places < known)
            then, now = _Known(as_left, VersionedTable.of(numbered.filter(stood))), _Known(everything, versions)
            outputs.insert(0, self._corrected(numbered.filter(left), then, now, altered))
        gone = self._gone(times, kinds, versions, edge)
        held = int(waiting[:known].sum())
        kept = everything.filter(~gone) if gone.any() else everything
        return Applied(
            # Every batch adds chunks, and to gather from many is slow.
            kept.rechunk() if kept.n_chunks() > MOST_CHUNKS else kept,
            news(everything, altered, gone, known=known),
            state.select(ARRIVAL).filter(gone[:known]),
            pl.concat(outputs) if len(outputs) > 1 else outputs[0],
            dropped_second=len(versions.repeats),
            holding=Holding(held, shown.height, held + rows.height - shown.height),
        )

    def due(self, state: pl.DataFrame, edge: Edge) -> Due:
        """The earliest moment at which a row leaves, or a row or a version is forgotten.

        A version that time has not passed will end the one before it, if there is one: to look for it costs more.
        """
        row = pl.when(pl.col(TIME) >= edge.fire).then(pl.col(TIME) + 1).otherwise(pl.col(TIME) + self.corrects_for + 1)
        is_ahead = pl.col(TIME) >= before(edge.fire, self._reach)
        life = pl.when(is_ahead).then(1).otherwise(pl.lit(self.ttl, pl.Int64))
        version = pl.col(TIME) + self._reach + life
        return Due(state.select(pl.when(_IS_ROW).then(row).otherwise(version).min()).item())

    @property
    def _reach(self) -> int:
        """How far behind time a row may be that still needs its version."""
        return max(self.corrects_for, self.lateness.correctable)

    def _numbered(self, everything: pl.DataFrame, touched: npt.NDArray[np.bool_]) -> pl.DataFrame:
        """All rows and versions of the keys that are touched, with the numbers of their keys."""
        placed = [PLACED] if self.layout.keeps_positions else []
        narrow = everything.select(*self.key, TIME, KIND, *placed).with_row_index(PLACE)
        return with_key_numbers(narrow, self.key, of=everything.select(self.key).filter(touched))

    def _gone(self, times: Places, kinds: Places, versions: VersionedTable, edge: Edge) -> npt.NDArray[np.bool_]:
        """Which of all rows and versions are no longer needed."""
        settled = before(edge.fire, self._reach)
        gone: npt.NDArray[np.bool_] = (kinds == ROW) & (times < before(edge.fire, self.corrects_for))
        gone |= (kinds == ENDED) & (times < settled)
        if self.ttl is not None:
            gone |= (kinds != ROW) & (times <= before(settled, self.ttl))
        # A version is of use until the next one of its key is valid wherever a row may still be.
        following = versions.following
        superseded = following <= settled
        if not self.layout.keeps_unsent:
            superseded |= following == versions.side.times
        gone[versions.places[superseded]] = True
        gone[versions.repeats] = True
        return gone

    def _emitted(self, everything: pl.DataFrame, rows: pl.DataFrame, met: pl.Series) -> pl.DataFrame:
        """Rows with their versions, as they leave for the first time."""
        places = rows[PLACE]
        if self.how == "inner" and met.has_nulls():
            places, met = places.filter(met.is_not_null()), met.drop_nulls()
        joined = self.layout.joined(everything, places, met)
        return joined.with_columns(pl.lit(INSERT).alias(CHANGE)) if self.corrects_for else joined

    def _corrected(self, rows: pl.DataFrame, then: _Known, now: _Known, altered: npt.NDArray[np.bool_]) -> pl.DataFrame:
        """Rows that have left with another version than they would meet now: what was said of them, and what is."""
        rows = rows.sort(TIME, maintain_order=True)
        side = side_of(rows)
        met = [each.versions.met_by(side, self.ttl).alias(name) for name, each in ((_THEN, then), (_NOW, now))]
        is_other = met[0].ne_missing(met[1]) | pl.Series(altered).gather(met[1]).fill_null(False)
        changed = rows.select(PLACE).with_columns(met).filter(is_other).with_row_index(_ORDER)
        updates = pl.lit(True) if self.how == "left" else pl.col(_THEN).is_not_null() & pl.col(_NOW).is_not_null()
        said = pl.when(updates).then(pl.lit(UPDATE_BEFORE)).otherwise(pl.lit(DELETE)).alias(CHANGE)
        says = pl.when(updates).then(pl.lit(UPDATE_AFTER)).otherwise(pl.lit(INSERT)).alias(CHANGE)
        story = []
        for each, name, change in ((then, _THEN, said), (now, _NOW, says)):
            told = changed.select(_ORDER, PLACE, name, change)
            told = told.drop_nulls(name) if self.how == "inner" else told
            joined = self.layout.joined(each.everything, told[PLACE], told[name])
            story.append(joined.with_columns(told[CHANGE], told[_ORDER]))
        return pl.concat(story).sort(_ORDER, maintain_order=True).drop(_ORDER)


@dataclass(frozen=True, slots=True)
class _Known:
    """Rows and versions as they were known at some time, and the versions among them in order."""

    everything: pl.DataFrame
    versions: VersionedTable
