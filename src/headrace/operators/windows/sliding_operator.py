"""Sliding windows: for every row the aggregate of its key over the interval that ends with the row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import ARRIVAL, arrived_rows, next_arrival
from headrace.operators.windows.aggregation import GIVEN, REVISION, Aggregation, WindowOperator, as_given, window_of
from headrace.operators.windows.emission import AccumulationMode, Emission
from headrace.operators.windows.sliding_totals import (
    CHANGED,
    EARLIEST,
    NEW,
    PANE,
    PLACE,
    REACHED,
    SUMS,
    TIME,
    KeySpread,
    SlidingTotals,
)
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined, Due, Uncombined

_SHOWN_AS, _BEFORE = "__shown_as", "__before"
"""Columns of rows that are emitted: their pane, and the revision emitted last; null for the first time."""
_REVISION = (pl.col(_BEFORE).fill_null(-1) + 1).cast(pl.Int32)


@dataclass(frozen=True)
class SlidingOperator(WindowOperator, Uncombined):
    """Aggregates ``(t - size, t]`` of a row's key for every row, and emits it with the row's own columns.

    A state row is a whole row with its arrival number in the key group. It stays as long as a row that may still be
    emitted covers it. Whether it has been emitted follows from its time, so most rows are written once. Only what does
    not follow from the time is stored: the revision of a row that was emitted early or again, and its last results
    where they may be retracted.
    """

    name: str
    aggregation: Aggregation
    size: int
    emission: Emission
    lateness: Lateness
    accumulation: AccumulationMode
    shares: KeySpread | None = None
    """How a hot key is spread over several key groups; the state then also has rows that stand for panes."""
    identity = (ARRIVAL,)

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, and the share of a key that is spread."""
        return self.aggregation.key if self.shares is None else self.shares.key

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return {**self.aggregation.schema, **({} if self.shares is None else self.shares.schema)}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        given = {f"{name}{GIVEN}": dtype for name, dtype in self.aggregation.results.items()}
        kept = {**self.partial_schema, ARRIVAL: pl.Int64(), REVISION: pl.Int32()}
        return {**kept, **given} if self._has_change else kept

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Set late rows aside; the others cannot be combined, because each is emitted."""
        aggregation = self.aggregation
        is_late = aggregation.is_late(bounds, correctable=self.lateness.correctable)
        taken, late = aggregation.split_late(rows, bounds, is_late)
        accepted = canonical(taken, aggregation.key).select(aggregation.schema.keys())
        partials = accepted if self.shares is None else self.shares.spread(accepted)
        return Combined(partials, late, accepted.height)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Emit rows that late ones will correct, add the batch's rows, emit and correct, drop expired rows."""
        following = next_arrival(state)
        known, sums = self._apart(self._marked(state, new=False))
        arrived = self._marked(arrived_rows(partials, following, self.state_schema), new=True)
        first: int | None = arrived.select(pl.col(TIME).min()).item()
        outputs = [self._no_output]
        after = bounds.before
        if first is not None and first < bounds.late:
            known, shown = self._emit(known, sums, (after, bounds.late), None)
            outputs.append(shown)
            after = bounds.late
        fresh, fresh_sums = self._apart(arrived)
        if self.shares is not None:
            sums = self.shares.taken(sums, fresh_sums)
        rows, shown = self._emit(pl.concat([known, fresh]), sums, (after, bounds.fire), first)
        outputs.append(shown)
        rows = pl.concat([rows, sums])
        over = rows.select(self._expires <= bounds.fire).to_series()
        kept = rows.filter(~over) if over.any() else rows
        return Applied(
            kept.select(self.state_schema.keys()),
            kept.filter(CHANGED).select(self.state_schema.keys()),
            rows.filter(over & (rows[ARRIVAL] < following)).select(self.identity),
            # Rows of one key leave in the order of time, and each after its retraction.
            pl.concat(outputs).sort(TIME, ARRIVAL, maintain_order=True).select(self.output_schema.keys()),
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest time at which a row is emitted or expires."""
        pending = pl.when(pl.col(TIME) >= bounds.fire).then(pl.col(TIME) + 1)
        return Due(self._timed(state).select(pl.coalesce(pending, self._expires).min()).item())

    @property
    def _expires(self) -> pl.Expr:
        """When no row that may still be emitted covers a row any more."""
        return pl.col(TIME) + self.size + self.lateness.correctable

    @property
    def _window(self) -> tuple[pl.Expr, pl.Expr]:
        return pl.col(TIME) - self.size + 1, pl.col(TIME) + 1

    @cached_property
    def _windows(self) -> SlidingTotals:
        return SlidingTotals(self.aggregation, {name: self.partial_schema[name] for name in self.key}, self.size)

    @cached_property
    def _own(self) -> dict[str, pl.DataType]:
        """The row's own columns, without those of an earlier window."""
        replaced = ("window", "pane", "revision", "change")
        return {name: dtype for name, dtype in self.aggregation.schema.items() if name not in replaced}

    @cached_property
    def _no_output(self) -> pl.DataFrame:
        return pl.DataFrame(schema={**self.output_schema, TIME: pl.Int64(), ARRIVAL: pl.Int64()})

    def _timed(self, rows: pl.DataFrame) -> pl.DataFrame:
        time = self.aggregation.row_time
        if self.shares is not None:
            time = pl.coalesce(time, pl.col(SUMS).struct.field(EARLIEST))
        return rows.with_columns(time.alias(TIME))

    def _marked(self, rows: pl.DataFrame, *, new: bool) -> pl.DataFrame:
        return self._timed(rows).with_columns(pl.lit(new).alias(NEW), pl.lit(new).alias(CHANGED))

    def _apart(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows, and rows that stand for panes."""
        if self.shares is None:
            return rows, rows.clear()
        stands_for_pane = rows[SUMS].is_not_null()
        return rows.filter(~stands_for_pane), rows.filter(stands_for_pane)

    def _emit(
        self, rows: pl.DataFrame, sums: pl.DataFrame, closes: tuple[int, int], first: int | None
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Emit rows that close and rows that new rows have changed; returns all rows, and the results.

        ``closes`` are two times: rows from the first on and before the second close. Earlier rows have closed, later
        ones stay open. ``first`` is the time of the first new row.
        """
        after, until = closes
        time = pl.col(TIME)
        closing = (time >= after) & (time < until)
        candidates = closing
        if first is not None:
            others = (time < after) | (time >= until) if self.emission.kind == "on_update" else time < after
            candidates = closing | (others & (time >= first))
        totals = self._windows.totals(rows, candidates)
        if self.shares is not None and not sums.is_empty():
            totals = totals.with_columns(self.shares.pane(time).alias(PANE))
            totals = self._windows.with_more(totals, self.shares.beyond(totals, sums), on=(*self.key, PANE))
        totals = totals.filter(closing | pl.col(REACHED))
        if totals.is_empty():
            return rows, self._no_output
        once = pl.when((time < after) & ~pl.col(NEW)).then(0)
        pane = pl.when(time < after).then(pl.lit("late")).when(time < until).then(pl.lit("on_time"))
        shown = rows[totals[PLACE]].with_columns(
            totals[PLACE],
            *totals.select(self.aggregation.result(totals)).iter_columns(),
            pane.otherwise(pl.lit("early")).alias(_SHOWN_AS),
            pl.coalesce(pl.col(REVISION), once).alias(_BEFORE),
        )
        return self._remembered(rows, shown), self._output(shown)

    def _remembered(self, rows: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
        """The rows, with what was emitted where that does not follow from the time."""
        lasting = shown
        if not self._has_change:
            revised_before = pl.col(REVISION).is_not_null() if self.lateness.correctable else pl.lit(False)
            lasting = shown.filter((pl.col(_SHOWN_AS) != "on_time") | revised_before)
        if lasting.is_empty():
            return rows
        results = self.aggregation.results if self._has_change else {}
        given = (pl.col(name).alias(f"{name}{GIVEN}") for name in results)
        revised = lasting.with_columns(_REVISION.alias(REVISION), pl.lit(True).alias(CHANGED), *given)
        as_they_were = np.ones(rows.height, dtype=np.bool_)
        as_they_were[lasting[PLACE].to_numpy()] = False
        return pl.concat([rows.filter(pl.Series(as_they_were)), revised.select(rows.columns)])

    def _output(self, shown: pl.DataFrame) -> pl.DataFrame:
        """Result rows, each after its retraction."""
        told: tuple[str | pl.Expr, ...] = (
            *self._own,
            window_of(*self._window),
            pl.col(_SHOWN_AS).alias("pane"),
            TIME,
            ARRIVAL,
        )
        columns, results = self._no_output.columns, self.aggregation.results
        is_first = pl.col(_BEFORE).is_null()
        change = pl.when(is_first).then(pl.lit("insert")).otherwise(pl.lit("update_after")).alias("change")
        now = shown.select(*told, *results, _REVISION.alias("revision"), change).select(columns)
        if not self._has_change:
            return now
        retraction = (pl.col(_BEFORE).alias("revision"), pl.lit("update_before").alias("change"))
        earlier = shown.filter(~is_first).select(*told, *as_given(results), *retraction)
        return pl.concat([earlier.select(columns), now])
