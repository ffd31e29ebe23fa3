"""The window join: rows of two inputs that fall into the same window match when it closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import polars as pl

from headrace.durations import Duration, spoken
from headrace.errors import DefinitionError, check_choice
from headrace.event_time.record import TimeBounds
from headrace.expressions.operands import Schema
from headrace.operators.joins.join_columns import JoinedColumns, OnColumns, join_key
from headrace.operators.joins.match_strategies import AllMatches, JoinHow
from headrace.operators.joins.matching import CandidateRows, Int64Array, RowPairs, retained
from headrace.operators.joins.stream_join import RIGHT, JoinInput, StreamJoin, StreamJoinOperator
from headrace.operators.rows import ROW_NUMBER, TIME, has_closed
from headrace.operators.windows.aggregation import WINDOW
from headrace.operators.windows.assigners import Windows
from headrace.operators.windows.fixed_windows import FixedWindowStep, cumulating, hopping, tumbling
from headrace.schemas import MOMENT
from headrace.stability import stable
from headrace.state.order_ranges import OrderRanges
from headrace.wheel.operator import Applied, Due

PANE, END, NEW = "__pane", "__end", "__new"


@dataclass(frozen=True, slots=True)
class WindowShape:
    """A kind of windows and their lengths, without key and aggregates."""

    step: FixedWindowStep

    def __repr__(self) -> str:
        arguments = self.step._arguments
        more = "".join(f", {name}={arguments[name]!r}" for name in arguments if name not in ("size", "key"))
        return f"hr.{self.step.kind}_window({arguments['size']!r}{more})"


@stable
def tumbling_window(size: Duration, *, offset: Duration | None = None, time_zone: str | None = None) -> WindowShape:
    """Windows of one length without overlap; with a time zone, days, weeks and months of its calendar.

    >>> tumbling_window("10 minutes")
    hr.tumbling_window('10 minutes')
    """
    return WindowShape(tumbling("window", size=size, key=None, offset=offset, time_zone=time_zone))


@stable
def hopping_window(size: Duration, *, every: Duration, offset: Duration | None = None) -> WindowShape:
    """Overlapping windows of one length: a new one starts ``every`` so often.

    >>> hopping_window("1 hour", every="10 minutes")
    hr.hopping_window('1 hour', every='10 minutes')
    """
    return WindowShape(hopping("window", size=size, every=every, key=None, offset=offset))


@stable
def cumulating_window(size: Duration, *, step: Duration, offset: Duration | None = None) -> WindowShape:
    """Windows that start together and grow by ``step`` up to ``size``.

    >>> cumulating_window("1 day", step="1 hour")
    hr.cumulating_window('1 day', step='1 hour')
    """
    return WindowShape(cumulating("window", step=step, size=size, key=None, offset=offset))


@dataclass(frozen=True, kw_only=True, repr=False)
class WindowJoin(StreamJoin):
    """A join of rows in the same window; call ``.late()`` before use."""

    kind = "window_join"
    _own_columns: ClassVar[Schema] = {"window": WINDOW}

    window: WindowShape

    def _operator(self, left: JoinInput, right: JoinInput, columns: JoinedColumns, own: Schema) -> WindowJoinOperator:
        strategy = AllMatches(self.how, 0, 0)
        return WindowJoinOperator(self.name, left, right, columns, own, self.on, strategy, self._windows)

    @property
    def _windows(self) -> Windows:
        return self.window.step.windows

    @property
    def _identity(self) -> Mapping[str, object]:
        return {**self._arguments, "window": repr(self.window)}

    @property
    def horizon(self) -> int:
        return self.window.step.horizon

    @property
    def state_description(self) -> str:
        kept = self.horizon + self.retention
        longer = f" and {spoken(self.retention)} longer" if self.retention else ""
        return (
            f"rows of both sides until their last window closes{longer}; at most (left rate + right rate) x "
            f"({spoken(kept)} + lag) rows, where lag is how far the slower input's watermark is behind the newest row; "
            f"with 1,000 rows/s on each side and no lag {2 * kept // 1_000:,} rows"
        )

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"on": self.on.as_written, "window": self.window, "how": self.how}


@stable
def window_join(name: str, *, on: OnColumns, window: WindowShape | Duration, how: JoinHow = "inner") -> WindowJoin:
    """Join rows of two frames with equal ``on`` in the same window; a duration means tumbling windows.

    >>> window_join("seen", on="user", window="10 minutes")
    hr.window_join('seen', on='user', window=hr.tumbling_window('10 minutes'), how='inner')
    """
    check_choice(JoinHow, step=name, how=how)
    shape = tumbling_window(window) if isinstance(window, str | timedelta) else window
    if not isinstance(shape, WindowShape):
        raise DefinitionError(
            "JOIN_WINDOW",
            f"step {name!r}: window={window!r} is not a window. Give a duration, as in window='10 minutes', or "
            "hr.tumbling_window(...), hr.hopping_window(...) or hr.cumulating_window(...).",
        )
    key = join_key(on, step=name)
    return WindowJoin(name=name, key=key.left, on=key, window=shape, how=how)


@dataclass(frozen=True)
class WindowJoinOperator(StreamJoinOperator):
    """Joins rows by key and window; a row is buffered once, until the last of its windows accepts no more rows.

    Which pairs were emitted is derived: as long as late rows are accepted, a closed window still has all its rows.
    """

    own_state: ClassVar[Schema] = {PANE: pl.Int64()}
    output_time = "window"
    """A result's time is the last moment of its window."""
    strategy: AllMatches
    windows: Windows

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self.columns.key, "window": WINDOW, **self.columns.schema, **self.own}

    def _moments(self, moments: Int64Array) -> pl.Series:
        start = self.windows.start(pl.col(END)).cast(MOMENT).alias("start")
        window = pl.struct(start, pl.col(END).cast(MOMENT).alias("end")).alias("window")
        return pl.DataFrame({END: moments}, schema={END: pl.Int64()}).select(window).to_series()

    def _initial_state(self, arrived: pl.DataFrame) -> pl.DataFrame:
        return arrived.select(self.windows.pane(pl.col(TIME)).alias(PANE))

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        rows, known = self._buffered(state, partials, second, bounds), state.height
        expired = rows.select(self._expires <= bounds.fire).to_series().to_numpy()
        return Applied(
            *retained(rows, known=known, identity=self.identity, expired=expired), self._output(rows, known, bounds)
        )

    def due(self, bounds: TimeBounds) -> Due:
        due = Due(pl.col(PANE), dead_at=self._expires, order=pl.col(TIME), ranges=partial(self._ranges, bounds=bounds))
        if not self.windows.overlapping:
            return due
        return replace(due, reach=self.windows.size, following=self.windows.next_close)

    def _ranges(self, frames: Sequence[pl.DataFrame], bounds: TimeBounds) -> OrderRanges:
        """The windows that close, and those of new rows that had closed before."""
        panes = pl.concat([frame.select(self.windows.pane(pl.col(TIME)).alias(PANE)) for frame in frames])
        return OrderRanges.covering(
            self.windows.closing(bounds.before, bounds.fire), self.windows.closed(panes[PANE], bounds.before)
        )

    @property
    def _expires(self) -> pl.Expr:
        return self.windows.last(pl.col(PANE)) + self.left.lateness.correctable

    def _output(self, rows: pl.DataFrame, known: int, bounds: TimeBounds) -> pl.DataFrame:
        """Pairs in windows that close, and in closed windows that got new rows."""
        assigned = self._assigned(rows, known, bounds)
        if assigned.is_empty():
            return pl.DataFrame(schema=self.output_schema)
        outcome = self.strategy.outcome(self._candidates(assigned, bounds), bounds)
        pairs = outcome.pairs
        row_numbers = assigned[ROW_NUMBER].to_numpy().astype(np.int64)
        ends = assigned[END].to_numpy()[pairs.either]
        of_rows = RowPairs(*(np.where(side < 0, -1, row_numbers[side]) for side in (pairs.left, pairs.right)))
        return self._results(rows, of_rows, outcome.retracted, ends)

    def _assigned(self, rows: pl.DataFrame, known: int, bounds: TimeBounds) -> pl.DataFrame:
        """Every row in each of its windows that closes now, or that is closed and still accepts rows."""
        end, is_new = pl.col(END), pl.col(NEW)
        accepts_rows = ~has_closed(end, bounds, self.left.lateness.correctable)
        concerned = (end <= bounds.fire) & (accepts_rows | (~is_new & (end > bounds.before)))
        return (
            rows.lazy()
            .select(*self.key, RIGHT, PANE)
            .with_row_index(ROW_NUMBER)
            .with_columns((pl.col(ROW_NUMBER) >= known).alias(NEW))
            .filter(self.windows.first(pl.col(PANE)) <= bounds.fire)
            .with_columns(self.windows.all(pl.col(PANE)).alias(END))
            .explode(END)
            .filter(concerned)
            .collect()
        )

    def _candidates(self, assigned: pl.DataFrame, bounds: TimeBounds) -> CandidateRows:
        """The rows as candidates within their windows: those of windows that closed before matched already."""
        ends, is_right = assigned[END].to_numpy(), assigned[RIGHT].to_numpy()
        is_new = assigned[NEW].to_numpy() | (ends > bounds.before)
        keys = self._key_numbers(assigned, (*self.key, END), is_new & ~self._without_key(assigned))
        # A buffered row has matched if its window has a buffered row of the other side.
        in_left, in_right = (np.isin(keys, keys[~is_new & side]) for side in (~is_right, is_right))
        matched = ~is_new & (keys >= 0) & np.where(is_right, in_left, in_right)
        # Within a window time does not matter, and rows with a null key have key number -1.
        times, without_key = np.zeros_like(ends), np.zeros(assigned.height, dtype=np.bool_)
        return CandidateRows(times, times, times, is_right, is_new, matched, ends - 1, without_key, keys)
