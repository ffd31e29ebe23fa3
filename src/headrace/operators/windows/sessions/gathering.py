"""The map side of sessions: rows that are close to each other become one part, those that may be late travel whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.fixed.previews import UNSEEN
from headrace.operators.windows.sessions.chains import CHAIN, END, FIRST, chained
from headrace.operators.windows.sessions.gap import Gap
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Combined

ROOT = "__root"
"""What tells a session from all others of its key: its start, or the first moment that was not over when that came."""
WHOLE = "__whole"
"""The row of a part that may turn out late: a list, because one without elements costs nothing on the way."""
_BOUNDS = {FIRST: pl.col(FIRST).min(), END: pl.col(END).max(), ROOT: pl.col(ROOT).min()}


@dataclass(frozen=True)
class SessionCombiner:
    """Makes parts of sessions from rows, and fewer parts from many."""

    aggregation: Aggregation
    lateness: Lateness
    gap: Gap
    cutting: bool
    """Whether sessions may be cut, so that only rows of one time belong together whatever else comes."""
    counting: bool
    """Whether the rows of every part are counted, for emission before the close."""

    @cached_property
    def types(self) -> dict[str, pl.DataType]:
        """A part without its row: key, times of the first row, the end and the root, partial aggregates."""
        times = dict.fromkeys((FIRST, END, ROOT), pl.Int64())
        counted = {UNSEEN: pl.Int64()} if self.counting else {}
        return {**self.aggregation.keys, **times, **self.aggregation.states, **counted}

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        """A part as it travels."""
        return {**self.types, WHOLE: pl.List(pl.Struct(self._whole_row))}

    @cached_property
    def merging(self) -> dict[str, pl.Expr]:
        """Parts of a group made one."""
        counted = {UNSEEN: pl.col(UNSEEN).sum()} if self.counting else {}
        return {**_BOUNDS, **self.aggregation.merged, **counted}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Gather rows that are on time for certain; whether the others are late is for the state to tell."""
        aggregation = self.aggregation
        taken, late = aggregation.split_late(rows, bounds, aggregation.is_correction)
        time = aggregation.row_time
        timed = taken.with_columns(time.alias(FIRST), self.gap.behind(time).alias(END), time.alias(ROOT))
        doubtful = timed.select(pl.col(FIRST) < bounds.late).to_series()
        if not doubtful.any():
            parts = self._together(timed)
        else:
            parts = pl.concat([self._together(timed.filter(~doubtful)), self._apart(timed.filter(doubtful), bounds)])
        return Combined(parts, late, taken.height)

    def merge(self, parts: pl.DataFrame) -> pl.DataFrame:
        """Parts of several frames; those with a row of their own stay as they are."""
        apart = parts.select(pl.col(WHOLE).is_not_null()).to_series()
        if not apart.any():
            return self._gathered(parts, self.merging)
        return pl.concat([self._gathered(parts.filter(~apart), self.merging), parts.filter(apart)])

    def rows_of(self, parts: pl.DataFrame) -> pl.DataFrame:
        """The rows that parts carry."""
        return parts.select(pl.col(WHOLE).explode().struct.unnest())

    @cached_property
    def _partial(self) -> dict[str, pl.Expr]:
        """Rows of a group made one part."""
        counted = {UNSEEN: pl.len().cast(pl.Int64)} if self.counting else {}
        return {**_BOUNDS, **self.aggregation.partial, **counted}

    @property
    def _whole_row(self) -> Mapping[str, pl.DataType]:
        """What a late row must still have when it is found late: everything if it is kept, else just its time."""
        schema = self.aggregation.schema
        return schema if self.lateness.keeps_rows else {self.aggregation.time: schema[self.aggregation.time]}

    def _together(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows that are close to each other as one part."""
        aggregation = self.aggregation
        read = {*aggregation.key, aggregation.time, FIRST, END, ROOT}.union(
            *(each.columns for each in aggregation.aggregates)
        )
        # What nothing reads need not be sorted.
        rows = rows.select(name for name in rows.columns if name in read)
        return self._gathered(canonical(rows, aggregation.key), self._partial)

    def _gathered(self, parts: pl.DataFrame, aggregated: Mapping[str, pl.Expr]) -> pl.DataFrame:
        if parts.is_empty():
            return pl.DataFrame(schema=self.schema)
        key = self.aggregation.key
        nothing = pl.lit(None, self.schema[WHOLE]).alias(WHOLE)
        if self.cutting:
            by = [*key, FIRST]
            aggregated = {name: value for name, value in aggregated.items() if name not in by}
            gathered = parts.group_by(by).agg(**aggregated)
        elif key and parts.select(pl.col(FIRST).max() < pl.col(END).min()).item():
            # All rows of a key belong together, so nothing need be sorted.
            gathered = parts.group_by(key).agg(**aggregated)
        else:
            firsts = (pl.col(name).first() for name in key)
            gathered = chained(parts, key).group_by(CHAIN).agg(*firsts, **aggregated)
        return gathered.with_columns(nothing).select(self.schema.keys())

    def _apart(self, rows: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        """Every row a part of its own, with the row as it came."""
        # A session that began before this moment may have been emitted and forgotten, so another gets no id from there.
        not_over = bounds.late - self.gap.least - self.lateness.correctable + 1
        rows = rows.with_columns(pl.max_horizontal(ROOT, pl.lit(not_over, pl.Int64)).alias(ROOT))
        whole = pl.concat_list(pl.struct(self._whole_row.keys())).alias(WHOLE)
        numbered = canonical(rows.with_columns(whole), self.aggregation.key).with_row_index(CHAIN)
        firsts = (pl.col(name).first() for name in (*self.aggregation.key, WHOLE))
        return numbered.group_by(CHAIN).agg(*firsts, **self._partial).select(self.schema.keys())
