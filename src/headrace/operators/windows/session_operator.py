"""What all session windows share: rows that are close to each other become a part of a session, and parts a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.key_hash import canonical
from headrace.operators.rows import with_schema
from headrace.operators.windows.aggregation import WindowOperator
from headrace.wheel.operator import Combined

DURATION = pl.Duration("us")


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest gap in microseconds, and the column with a row's own gap, if there is one."""

    longest: int
    column: str | None = None

    @property
    def least(self) -> int:
        return self.longest if self.column is None else 1

    def end_of(self, time: pl.Expr) -> pl.Expr:
        """Where the session of a single row at this time ends.

        >>> rows = pl.DataFrame({"wait": [3, None, 0, 99]}, schema={"wait": DURATION})
        >>> rows.select(Gap(10, "wait").end_of(pl.lit(100))).to_series().to_list()
        [103, 110, 101, 110]
        """
        if self.column is None:
            return time + self.longest
        # A wrong value must neither keep a session open for ever nor give a session no length.
        return time + pl.col(self.column).cast(pl.Int64).clip(1, self.longest).fill_null(self.longest)

    def check(self, window: str, schema: Mapping[str, pl.DataType]) -> None:
        if self.column is None or schema.get(self.column) == DURATION:
            return
        found = f"is {schema[self.column]}" if self.column in schema else "does not exist"
        raise DefinitionError(
            "GAP_COLUMN",
            f"window {window!r}: gap_column={self.column!r} {found}; it must be an INTERVAL DAY TO SECOND, as of "
            f"F.expr('make_dt_interval(0, 0, 0, seconds)'). Columns: {', '.join(schema)}.",
        )


FIRST, END = "__first", "__end"
"""The time of the first row of a part, and where the part ends if no row follows, in microseconds."""
CHAIN = "__chain"
_PLACE, _ROW, _REACHED = "__place_among_parts", "__row", "__reached"
_APART = 2**64
"""More than the distance of any two times, so that parts of two keys never touch."""


def chained(parts: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Parts by key and time, with the number of the chain of overlapping parts that each belongs to.

    >>> parts = pl.DataFrame({"key": ["a", "a", "b", "a"], FIRST: [1, 20, 2, 3], END: [20, 32, 14, 16]})
    >>> chained(parts, ["key"]).select("key", FIRST, CHAIN).rows()
    [('a', 1, 0), ('a', 3, 0), ('a', 20, 1), ('b', 2, 2)]
    """
    ordered = parts.sort(*key, FIRST)
    others = (pl.col(name).ne_missing(pl.col(name).shift()) for name in key)
    # One running maximum over all keys is ten times as fast as one for each, so the times of keys are moved apart.
    moved = pl.any_horizontal(pl.lit(False), *others).cum_sum().cast(pl.Int128) * _APART
    apart = moved + pl.col(FIRST) >= (moved + pl.col(END)).cum_max().shift()
    return ordered.with_columns(apart.fill_null(False).cum_sum().alias(CHAIN))


def cut(chains: pl.DataFrame, length: int, gap: int) -> pl.DataFrame:
    """Chains cut from the start, so that no row is ``length`` or more after the first of its chain.

    Every part ends ``gap`` after its last row.

    >>> parts = pl.DataFrame({FIRST: [0, 4, 9, 12, 30], END: [5, 9, 14, 17, 35], CHAIN: [0, 0, 0, 0, 1]})
    >>> cut(parts, length=9, gap=5)[CHAIN].to_list()
    [0, 0, 1, 1, 2]
    """
    moved = pl.col(CHAIN).cast(pl.Int128) * _APART
    reached = ((moved + pl.col(END)).cum_max() - moved - gap).cast(pl.Int64)
    numbered = chains.with_row_index(_ROW).with_columns(reached.alias(_REACHED))
    ends = numbered.unique([CHAIN, _REACHED], keep="first", maintain_order=True)
    following = numbered.select(CHAIN, (pl.col(FIRST) + length).alias(_REACHED)).join_asof(
        ends.select(CHAIN, _REACHED, _ROW), on=_REACHED, by=CHAIN, strategy="forward", check_sortedness=False
    )[_ROW]
    jumps = following.cast(pl.Int64).fill_null(-1).to_numpy()
    begin = numbered.select(pl.col(CHAIN).ne_missing(pl.col(CHAIN).shift()).arg_true()).to_series().to_numpy()
    is_begin = np.zeros(numbered.height, dtype=np.bool_)
    while len(begin):
        is_begin[begin] = True
        begin = jumps[begin]
        begin = begin[begin >= 0]
    pieces = (pl.Series(is_begin).cum_sum() - 1).alias(CHAIN)
    return numbered.with_columns(pieces).drop(_ROW, _REACHED)


ROOT = "__root"
"""The id of a session within its key: its start, or the first time that was still open when that row came."""
WHOLE = "__whole"
"""The row of a part that may turn out to be late; a list, because an empty one costs nothing in the shuffle."""
_BOUNDS = {FIRST: pl.col(FIRST).min(), END: pl.col(END).max(), ROOT: pl.col(ROOT).min()}
PLACE = "__place"
"""The position of a session in the stored state; null for one that has changed since."""


@dataclass(frozen=True)
class SessionOperator(WindowOperator):
    """Combines rows to parts of sessions; the state has the sessions that still accept rows."""

    gap: Gap
    max_length: int | None
    """Sessions may be cut here, so that only rows of equal times certainly belong together."""
    times = _BOUNDS
    moments: ClassVar[Mapping[str, pl.Expr]] = {"session_id": pl.col(ROOT)}
    identified_by = (FIRST,)

    @cached_property
    def types(self) -> dict[str, pl.DataType]:
        times = dict.fromkeys((FIRST, END, ROOT), pl.Int64())
        return {**self.aggregation.keys, **times, **self._states}

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return {**self.types, WHOLE: pl.List(pl.Struct(self._whole_row))}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Combine rows that are certainly on time; whether the others are late depends on the state."""
        aggregation = self.aggregation
        taken, late = aggregation.split_late(rows, bounds, aggregation.is_correction)
        time = aggregation.row_time
        timed = taken.with_columns(time.alias(FIRST), self.gap.end_of(time).alias(END), time.alias(ROOT))
        doubtful = timed.select(pl.col(FIRST) < bounds.late).to_series()
        if not doubtful.any():
            parts = self._together(timed)
        else:
            parts = pl.concat([self._together(timed.filter(~doubtful)), self._apart(timed.filter(doubtful), bounds)])
        return Combined(parts, late, taken.height)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Merge parts; those that carry a row stay as they are."""
        apart = partials[WHOLE].is_not_null()
        if not apart.any():
            return self._gathered(partials, self._merged)
        return pl.concat([self._gathered(partials.filter(~apart), self._merged), partials.filter(apart)])

    @property
    def _whole_row(self) -> Mapping[str, pl.DataType]:
        """The columns that a late row needs: all if late rows are kept, else its time."""
        schema, time = self.aggregation.schema, self.aggregation.time
        return schema if self.lateness.keeps_rows else {time: schema[time]}

    def _together(self, rows: pl.DataFrame) -> pl.DataFrame:
        # Columns that nothing reads need not be sorted.
        read = {*self.key, FIRST, END, ROOT, *self.aggregation.read}
        narrow = rows.select(name for name in rows.columns if name in read)
        return self._gathered(canonical(narrow, self.key), self._partial)

    def _gathered(self, parts: pl.DataFrame, aggregated: Mapping[str, pl.Expr]) -> pl.DataFrame:
        if parts.is_empty():
            return pl.DataFrame(schema=self.partial_schema)
        nothing = pl.lit(None, self.partial_schema[WHOLE]).alias(WHOLE)
        if self.max_length is not None:
            by = [*self.key, FIRST]
            aggregated = {name: value for name, value in aggregated.items() if name not in by}
            gathered = parts.group_by(by).agg(**aggregated)
        elif self.key and parts.select(pl.col(FIRST).max() < pl.col(END).min()).item():
            # All rows of a key belong together, so no sort is needed.
            gathered = parts.group_by(self.key).agg(**aggregated)
        else:
            firsts = (pl.col(name).first() for name in self.key)
            gathered = self._chained(parts).group_by(CHAIN).agg(*firsts, **aggregated)
        return gathered.with_columns(nothing).select(self.partial_schema.keys())

    def _apart(self, rows: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        # A session from before this time may have been emitted and dropped, so no other may get its id.
        not_over = bounds.late - self.gap.least - self.lateness.correctable + 1
        rows = rows.with_columns(pl.max_horizontal(ROOT, pl.lit(not_over, pl.Int64)).alias(ROOT))
        whole = pl.concat_list(pl.struct(self._whole_row.keys())).alias(WHOLE)
        numbered = canonical(rows.with_columns(whole), self.key).with_row_index(CHAIN)
        firsts = (pl.col(name).first() for name in (*self.key, WHOLE))
        parts = numbered.group_by(CHAIN, maintain_order=True).agg(*firsts, **self._partial)
        return parts.select(self.partial_schema.keys())

    @property
    def _end(self) -> pl.Expr:
        silent = pl.col(END)
        return silent if self.max_length is None else pl.min_horizontal(silent, pl.col(FIRST) + self.max_length)

    @property
    def _window(self) -> tuple[pl.Expr, pl.Expr]:
        return pl.col(FIRST), self._end

    def _chained(self, parts: pl.DataFrame) -> pl.DataFrame:
        """Parts with the numbers of their chains; they stay in the order of arrival, which breaks ties of time."""
        chains = chained(parts.select(*self.key, FIRST, END).with_row_index(_PLACE), self.key)
        if self.max_length is not None:
            chains = cut(chains, self.max_length, self.gap.longest)
        numbers = np.empty(parts.height, dtype=np.int64)
        numbers[chains[_PLACE].to_numpy()] = chains[CHAIN].to_numpy()
        return parts.with_columns(pl.Series(CHAIN, numbers))

    def _over(self, chains: pl.DataFrame, passed: int) -> pl.Series:
        """Whether the session of each part accepts no more rows when event time has passed a time."""
        sessions = chains.group_by(CHAIN).agg(pl.col(FIRST).min(), pl.col(END).max())
        over = sessions.filter(self._end + self.lateness.correctable <= passed)[CHAIN]
        return chains[CHAIN].is_in(over.implode())

    def _arranged(
        self, known: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Sessions with their new parts, in chains; and the rows of sessions that accept no more rows."""
        added = {**known.schema, WHOLE: self.partial_schema[WHOLE]}
        chains = self._chained(pl.concat([with_schema(known, added), with_schema(partials, added)]))
        if partials[WHOLE].null_count() == partials.height:
            return chains, None
        late = [chains.clear()]
        while (too_late := self._over(chains, bounds.late) & chains[WHOLE].is_not_null()).any():
            late.append(chains.filter(too_late))
            # Without them, later cuts may be elsewhere.
            chains = self._chained(chains.filter(~too_late))
        rows = pl.concat(late).select(pl.col(WHOLE).explode().struct.unnest())
        return chains, self.aggregation.with_late_by(rows, bounds)

    def _gone(self, state: pl.DataFrame, known: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        """Identities that are gone from the stored state before their time is over."""
        changed, unchanged = known.filter(pl.col(PLACE).is_null()), known[PLACE].drop_nulls()
        is_over = self._end + self.lateness.correctable <= bounds.fire
        others = state.filter(~pl.int_range(pl.len()).is_in(unchanged.implode()) & ~is_over).select(self.identity)
        return others.join(changed, on=self.identity, how="anti", nulls_equal=True)
