"""A temporal join by arrival: a row meets the latest version that is known when it comes, and does not wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from headrace.event_time.record import Edge
from headrace.operators.arrival import ARRIVAL, in_order_of_arrival, next_arrival
from headrace.operators.joins.temporal_join_operator import (
    ENDED,
    KIND,
    PLACED,
    ROW,
    TIME,
    UNSENT,
    VERSION,
    TemporalJoinOperator,
)
from headrace.operators.joins.versioned_table import PLACE, carried, news
from headrace.operators.key_order import KEY_NUMBER, with_key_numbers
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined, Due

_IS_ROW = pl.col(KIND) == ROW
_MET, _SINCE = "__met", "__since"


@dataclass(frozen=True)
class TemporalJoinByArrival(TemporalJoinOperator):
    """Joins each row with the latest version of its key; versions of a batch come before its rows.

    A state row is the latest version of a key, or its end. By positions the latest is the one with the highest, without
    them the one that came last.
    """

    remembers: int | None
    """How long the end of a version is kept, so that an older change does not undo it; None: for ever."""

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Versions; what one of them was not sent it has been given when it came."""
        return {name: dtype for name, dtype in self.layout.version_schema.items() if name != UNSENT}

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """Nothing is late."""
        return {}

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Rows that have no key can only leave unmatched."""
        accepted = rows.drop_nulls(self.key) if self.how == "inner" else rows
        partials = canonical(accepted, self.key).select(self.partial_schema.keys())
        none_late = self.layout.rows.late(rows.clear(), edge)
        return Combined(partials, none_late, accepted.height, dropped=rows.height - accepted.height)

    def apply_both(self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, edge: Edge) -> Applied:
        """Take versions in, then join the rows, then forget what is over."""
        state = in_order_of_arrival(state)
        following = next_arrival(state)
        arrived = self.layout.versions_in(second, following).select(self.layout.version_schema.keys())
        rows = self.layout.rows_in(partials, following + second.height)
        everything = pl.concat([state, arrived, rows], how="diagonal")
        narrow = everything.select(self._narrow).with_row_index(PLACE)
        numbered = with_key_numbers(narrow, self.key, of=narrow[state.height :])
        ordered = self._in_order(numbered.filter(~_IS_ROW))
        latest = ordered.unique(KEY_NUMBER, keep="last", maintain_order=True)
        places, keys = (ordered[name].to_numpy().astype(np.int64) for name in (PLACE, KEY_NUMBER))
        everything, altered = carried(everything, places, keys, known=state.height)
        versions = everything[: state.height + arrived.height].select(self.state_schema.keys())
        over = versions.select((self._forgotten <= edge.fire).fill_null(False)).to_series()
        gone = over.to_numpy(writable=True)
        gone[ordered[PLACE].filter(ordered[PLACE].is_in(latest[PLACE]).not_()).to_numpy()] = True
        return Applied(
            versions.filter(~gone) if gone.any() else versions,
            news(versions, altered, gone, known=state.height),
            state.select(ARRIVAL).filter(gone[: state.height]),
            self._joined(everything, numbered.filter(_IS_ROW), latest),
            dropped_second=self._stale(ordered, state.height),
        )

    def due(self, state: pl.DataFrame, edge: Edge) -> Due:
        """The earliest moment at which a version is forgotten."""
        return Due(state.select(self._forgotten.min()).item())

    @property
    def _forgotten(self) -> pl.Expr:
        """When time has left a version, or the end of one, behind; null where it never does."""
        ends, lives = (pl.lit(kept, pl.Int64) for kept in (self.remembers, self.ttl))
        return pl.col(TIME) + pl.when(pl.col(KIND) == ENDED).then(ends).otherwise(lives)

    @property
    def _narrow(self) -> list[str]:
        placed = [PLACED] if self.layout.keeps_positions else []
        return [*self.key, ARRIVAL, TIME, KIND, *placed]

    def _in_order(self, versions: pl.DataFrame) -> pl.DataFrame:
        """Versions as they follow each other; of two that are the same the one that came last is before the other."""
        if not self.layout.keeps_positions:
            return versions.sort(ARRIVAL)
        placed = pl.col(PLACED).is_not_null()
        rank = pl.when(placed).then(pl.col(KIND)).otherwise(0)
        arrival = pl.when(placed).then(-pl.col(ARRIVAL)).otherwise(pl.col(ARRIVAL))
        return versions.sort(pl.col(PLACED), rank, arrival)

    def _stale(self, ordered: pl.DataFrame, known: int) -> int:
        """How many new versions are behind one that was known before, or are the same as another."""
        if not self.layout.keeps_positions:
            return 0
        is_known = pl.col(PLACE) < known
        behind = is_known.reverse().cum_max().reverse().over(KEY_NUMBER)
        repeats = pl.col(PLACED).is_not_null() & ~pl.struct(KEY_NUMBER, PLACED, KIND).is_last_distinct()
        return int(ordered.select((~is_known & (behind | repeats)).sum()).item())

    def _joined(self, everything: pl.DataFrame, rows: pl.DataFrame, latest: pl.DataFrame) -> pl.DataFrame:
        """Rows in the order of their arrival, each with the version that it meets."""
        told = latest.select(KEY_NUMBER, KIND, pl.col(PLACE).alias(_MET), pl.col(TIME).alias(_SINCE))
        found = rows.select(KEY_NUMBER, TIME, PLACE).join(told, on=KEY_NUMBER, how="left", maintain_order="left")
        valid = pl.col(KIND) == VERSION
        if self.ttl is not None:
            valid &= pl.col(TIME) - pl.col(_SINCE) < self.ttl
        met = found.select(PLACE, pl.when(valid).then(_MET).alias(_MET))
        met = met.drop_nulls(_MET) if self.how == "inner" else met
        return self.layout.joined(everything, met[PLACE], met[_MET])
