"""The temporal join by arrival: a row takes the latest version that is known when it arrives, and does not wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.operators.joins.temporal_join_operator import (
    KIND,
    ROW,
    TIME,
    TOMBSTONE,
    UNSENT,
    VERSION,
    VERSION_POSITION,
    TemporalJoinOperator,
    fill_unsent,
    upserts,
)
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, ROW_NUMBER, in_order_of_arrival, next_arrival, with_key_numbers
from headrace.wheel.operator import Applied, Combined, Due

_IS_ROW = pl.col(KIND) == ROW
_MATCH, _SINCE = "__match", "__since"


@dataclass(frozen=True)
class TemporalJoinByArrival(TemporalJoinOperator):
    """Joins each row with the latest version of its key; versions of a batch come before its rows.

    A state row is the latest version of a key, or its tombstone. The latest version is the one with the highest
    position; without positions, the one that arrived last.
    """

    tombstones_kept: int | None
    """How long a tombstone is kept, so that an older change does not undo the deletion; None: for ever."""
    side_schemas: ClassVar[dict[str, dict[str, pl.DataType]]] = {}

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Versions; values that were not sent have been filled in."""
        return {name: dtype for name, dtype in self.layout.version_schema.items() if name != UNSENT}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        return self.accept(rows, self.layout.rows.with_late_by(rows.clear(), bounds))

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        state = in_order_of_arrival(state)
        following = next_arrival(state)
        arrived = self.layout.versions_in(second, following).select(self.layout.version_schema.keys())
        rows = self.layout.rows_in(partials, following + second.height)
        everything = pl.concat([state, arrived, rows], how="diagonal")
        position = [VERSION_POSITION] if self.layout.has_positions else []
        narrow = everything.select(*self.key, ARRIVAL, TIME, KIND, *position).with_row_index(ROW_NUMBER)
        numbered = with_key_numbers(narrow, self.key, of=narrow[state.height :])
        ordered = self._in_order(numbered.filter(~_IS_ROW))
        latest = ordered.unique(KEY_NUMBER, keep="last", maintain_order=True)
        numbers, keys = (ordered[name].to_numpy().astype(np.int64) for name in (ROW_NUMBER, KEY_NUMBER))
        everything, altered = fill_unsent(everything, numbers, keys, known=state.height)
        versions = everything[: state.height + arrived.height].select(self.state_schema.keys())
        over = versions.select((self._expires <= bounds.fire).fill_null(False)).to_series()
        expired = over.to_numpy(writable=True)
        expired[ordered[ROW_NUMBER].filter(ordered[ROW_NUMBER].is_in(latest[ROW_NUMBER]).not_()).to_numpy()] = True
        return Applied(
            versions.filter(~expired) if expired.any() else versions,
            upserts(versions, altered, expired, known=state.height),
            state.select(ARRIVAL).filter(expired[: state.height]),
            self._joined(everything, numbered.filter(_IS_ROW), latest),
            dropped_second=self._stale(ordered, state.height),
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        return Due(state.select(self._expires.min()).item())

    @property
    def _expires(self) -> pl.Expr:
        """When a version or a tombstone expires; null where it never does."""
        tombstones, versions = (pl.lit(kept, pl.Int64) for kept in (self.tombstones_kept, self.ttl))
        return pl.col(TIME) + pl.when(pl.col(KIND) == TOMBSTONE).then(tombstones).otherwise(versions)

    def _in_order(self, versions: pl.DataFrame) -> pl.DataFrame:
        """Versions in their order; of duplicates the one that arrived first comes last, so that it is kept."""
        if not self.layout.has_positions:
            return versions.sort(ARRIVAL)
        has_position = pl.col(VERSION_POSITION).is_not_null()
        rank = pl.when(has_position).then(pl.col(KIND)).otherwise(0)
        arrival = pl.when(has_position).then(-pl.col(ARRIVAL)).otherwise(pl.col(ARRIVAL))
        return versions.sort(pl.col(VERSION_POSITION), rank, arrival)

    def _stale(self, ordered: pl.DataFrame, known: int) -> int:
        """How many new versions are older than a known one, or duplicates."""
        if not self.layout.has_positions:
            return 0
        is_known = pl.col(ROW_NUMBER) < known
        older = is_known.reverse().cum_max().reverse().over(KEY_NUMBER)
        is_last = pl.struct(KEY_NUMBER, VERSION_POSITION, KIND).is_last_distinct()
        duplicate = pl.col(VERSION_POSITION).is_not_null() & ~is_last
        return int(ordered.select((~is_known & (older | duplicate)).sum()).item())

    def _joined(self, everything: pl.DataFrame, rows: pl.DataFrame, latest: pl.DataFrame) -> pl.DataFrame:
        """Rows in the order of arrival, each with the version that it matches."""
        versions = latest.select(KEY_NUMBER, KIND, pl.col(ROW_NUMBER).alias(_MATCH), pl.col(TIME).alias(_SINCE))
        found = rows.select(KEY_NUMBER, TIME, ROW_NUMBER)
        found = found.join(versions, on=KEY_NUMBER, how="left", maintain_order="left")
        valid = pl.col(KIND) == VERSION
        if self.ttl is not None:
            valid &= pl.col(TIME) - pl.col(_SINCE) < self.ttl
        matches = found.select(ROW_NUMBER, pl.when(valid).then(_MATCH).alias(_MATCH))
        matches = matches.drop_nulls(_MATCH) if self.how == "inner" else matches
        return self.layout.joined(everything, matches[ROW_NUMBER], matches[_MATCH])
