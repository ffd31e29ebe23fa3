"""Sliding windows: for every row the aggregate of its key over the interval that ends with the row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.key_hash import canonical
from headrace.keys import Key, key_argument, key_columns
from headrace.operators.rows import ARRIVAL, TIME, arrivals, with_schema
from headrace.operators.windows.aggregation import NEXT_REVISION, REVISION, SHOWN_AS, Aggregation, WindowOperator
from headrace.operators.windows.emission import DISCARDING, AccumulationMode, Emission
from headrace.operators.windows.sliding_totals import CHANGED, NEW, PLACE, REACHED, SUMS, KeySpread, SlidingTotals
from headrace.operators.windows.window_step import WindowStep
from headrace.stability import stable
from headrace.state.order_ranges import OrderRanges
from headrace.wheel.operator import Applied, Combined, Due, Operator, Uncombined


@dataclass(frozen=True)
class SlidingOperator(WindowOperator, Uncombined):
    """Aggregates ``(t - size, t]`` of a row's key for every row, and emits it with the row's own columns.

    A state row is a whole row with its arrival number, as long as a row that may still be emitted covers it. Most rows
    are written once, because whether they have been emitted follows from their time. Only the revision of a row that
    was emitted early or again is stored, and its last results where they may be retracted.
    """

    size: int
    shares: KeySpread | None = None
    """How a hot key is spread over several slots; the state then also has rows that stand for panes."""

    order = (TIME, ARRIVAL)
    identified_by = (ARRIVAL,)

    @property
    def key(self) -> tuple[str, ...]:
        return self.aggregation.key if self.shares is None else self.shares.key

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return {**self.aggregation.schema, **({} if self.shares is None else self.shares.schema)}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        return {**self.partial_schema, ARRIVAL: pl.Int64(), **self._ledger}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        aggregation = self.aggregation
        is_late = aggregation.is_late(bounds, correctable=self.lateness.correctable)
        taken, late = aggregation.split_late(rows, bounds, is_late)
        accepted = canonical(taken, aggregation.key).select(aggregation.schema.keys())
        partials = accepted if self.shares is None else self.shares.spread(accepted)
        return Combined(partials, late, accepted.height)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Emit rows that late ones will correct, add the batch's rows, emit and correct."""
        known, sums = self._apart(self._marked(state, new=False))
        numbered = partials.with_columns(arrivals(bounds, partials.height))
        arrived = self._marked(with_schema(numbered, self.state_schema), new=True)
        first: int | None = arrived.select(pl.col(TIME).min()).item()
        outputs: list[pl.DataFrame] = []
        after = bounds.before
        if first is not None and first < bounds.late:
            known, shown = self._emit(known, sums, (after, bounds.late), None)
            outputs += shown
            after = bounds.late
        fresh, fresh_sums = self._apart(arrived)
        if self.shares is not None:
            sums = self.shares.taken(sums, fresh_sums)
        rows, shown = self._emit(pl.concat([known, fresh]), sums, (after, bounds.fire), first)
        outputs += shown
        upserts = pl.concat([rows, sums]).filter(pl.col(CHANGED) & (self._expires(pl.col(TIME)) > bounds.fire))
        return Applied(
            upserts.select(self.state_schema.keys()),
            state.clear().select(self.identity),
            # Rows of one key leave in the order of time, and each after its retraction.
            self._sorted(outputs, *self.order),
        )

    def due(self, bounds: TimeBounds) -> Due:
        time = self._row_time
        due = Due(pl.when(time >= bounds.fire).then(time + 1), dead_at=self._expires(time))
        if self.shares is not None:
            # What stands for a pane has the earliest of its times, which changes.
            return due
        return replace(due, order=time, ranges=partial(self._ranges, bounds=bounds))

    def _ranges(self, frames: Sequence[pl.DataFrame], bounds: TimeBounds) -> OrderRanges:
        """The windows of rows that close, and of rows whose windows have new rows, if those are shown at once."""
        times = frames[0].select(self._row_time).to_series().to_numpy()
        if self.emission.kind == "on_close":
            times = times[times < max(bounds.before, bounds.late)]
        reach = self.size - 1
        closing = (bounds.before - reach, max(bounds.late, bounds.fire) - 1)
        return OrderRanges.covering(closing, (times - reach, times + reach))

    def _expires(self, time: pl.Expr) -> pl.Expr:
        return time + self.size + self.lateness.correctable

    @property
    def _window(self) -> tuple[pl.Expr, pl.Expr]:
        return pl.col(TIME) - self.size + 1, pl.col(TIME) + 1

    @property
    def _computed_from(self) -> dict[str, pl.DataType]:
        return {**self.aggregation.results, SHOWN_AS: pl.String()}

    def _computed(self, totals: pl.DataFrame) -> list[pl.Expr]:
        return []  # rows that are shown have their results

    @cached_property
    def _totals(self) -> SlidingTotals:
        return SlidingTotals(self.aggregation, {name: self.partial_schema[name] for name in self.key}, self.size)

    @cached_property
    def _own(self) -> dict[str, pl.DataType]:
        """The row's own columns, without those of an earlier window."""
        return {name: dtype for name, dtype in self.aggregation.schema.items() if name not in WindowStep.result_columns}

    @property
    def _row_time(self) -> pl.Expr:
        return self.aggregation.row_time if self.shares is None else self.shares.row_time

    def _marked(self, rows: pl.DataFrame, *, new: bool) -> pl.DataFrame:
        return rows.with_columns(self._row_time.alias(TIME), pl.lit(new).alias(NEW), pl.lit(new).alias(CHANGED))

    def _apart(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        if self.shares is None:
            return rows, rows.clear()
        stands_for_pane = rows[SUMS].is_not_null()
        return rows.filter(~stands_for_pane), rows.filter(stands_for_pane)

    def _emit(
        self, rows: pl.DataFrame, sums: pl.DataFrame, closes: tuple[int, int], first: int | None
    ) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """Emit the rows that close between two times, and those that new rows, from a first time on, have changed."""
        after, until = closes
        time = pl.col(TIME)
        closing = (time >= after) & (time < until)
        candidates = closing
        if first is not None:
            others = (time < after) | (time >= until) if self.emission.kind == "on_update" else time < after
            candidates = closing | (others & (time >= first))
        totals = self._totals.totals(rows, candidates)
        if self.shares is not None and not sums.is_empty():
            totals = self.shares.with_others(self._totals, totals, sums)
        totals = totals.filter(closing | pl.col(REACHED))
        if totals.is_empty():
            return rows, []
        once = pl.when((time < after) & ~pl.col(NEW)).then(0)
        pane = pl.when(time < after).then(pl.lit("late")).when(time < until).then(pl.lit("on_time"))
        shown = rows[totals[PLACE]].with_columns(
            totals[PLACE],
            *totals.select(self.aggregation.result(totals)).iter_columns(),
            pane.otherwise(pl.lit("early")).alias(SHOWN_AS),
            pl.coalesce(pl.col(REVISION), once).alias(REVISION),
        )
        return self._remembered(rows, shown), self._revisions(shown)

    def _remembered(self, rows: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
        """The rows, with what was emitted where that does not follow from the time."""
        lasting = shown
        if not self._has_change:
            revised_before = pl.col(REVISION).is_not_null() if self.lateness.correctable else pl.lit(False)
            lasting = shown.filter((pl.col(SHOWN_AS) != "on_time") | revised_before)
        if lasting.is_empty():
            return rows
        given = (pl.col(name).alias(given) for name, given in self._given.items())
        revised = lasting.with_columns(NEXT_REVISION, pl.lit(True).alias(CHANGED), *given)
        as_they_were = ~pl.int_range(rows.height, eager=True).is_in(lasting[PLACE].implode())
        return pl.concat([rows.filter(as_they_were), revised.select(rows.columns)])


@dataclass(frozen=True, kw_only=True, repr=False)
class Sliding(WindowStep):
    """A window for every row that ends with the row."""

    kind = "sliding"
    window_id = None

    size: int
    shares: int

    def emit(self, emission: Emission) -> Self:
        """Choose when rows are emitted: ``hr.on_close()``, or ``hr.on_update()`` for at once and again when changed."""
        if isinstance(emission, Emission) and emission.counts:
            raise self._no_emission(
                emission,
                "sliding windows, each of which is complete when event time has passed its row. Use hr.on_close(), or "
                "hr.on_update() to have every row at once.",
            )
        return super().emit(emission)

    def panes(self, panes: AccumulationMode) -> Self:
        """Choose whether a row that is emitted again replaces the one before or retracts it first."""
        if panes == DISCARDING:
            raise self._no_panes(
                panes,
                "for sliding windows: every row has an aggregate of its own, and a part of it would mean nothing. Use "
                "hr.accumulating() or hr.retracting().",
            )
        return super().panes(panes)

    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        self._check_row_columns(aggregation, aggregation.schema)
        shares = KeySpread(aggregation, self.size, self.shares) if self.shares > 1 else None
        return SlidingOperator(aggregation, lateness, self.emission, self.accumulation, self.size, shares)

    @property
    def state_description(self) -> str:
        return f"every row, until event time is {spoken(self.size + self.retention)} behind it"

    @property
    def spread(self) -> int:
        return self.shares

    @property
    def horizon(self) -> int:
        return self.size

    @property
    def _arguments(self) -> Mapping[str, object]:
        spread = {"spread": self.shares} if self.shares > 1 else {}
        return {"size": spoken(self.size), "key": key_argument(self.key), **spread}


@stable
def sliding(name: str, *, size: Duration, key: Key, spread: int = 1) -> Sliding:
    """For every row the aggregate of its key over ``(t - size, t]``, added to the row's own columns.

    A window includes all rows of equal times. ``key=None`` puts all rows into one group. ``spread`` divides the rows of
    every key over this many tasks, for keys with too many rows for one.

    >>> sliding("recent", size="1 hour", key="account").agg(spent="sum(amount)")
    hr.sliding('recent', size='1 hour', key='account').agg(spent='sum(amount)').emit(hr.on_close())
    """
    length = positive_microseconds(size, argument="size")
    if type(spread) is not int or not 1 <= spread <= KeySpread.most:
        raise DefinitionError(
            "SPREAD_OUT_OF_RANGE",
            f"window {name!r}: spread={spread!r} is not a whole number between 1 and {KeySpread.most}. Use 1 for keys "
            "that one worker can carry, and for hot keys as many shares as there are cores.",
        )
    return Sliding(name=name, key=key_columns(key), size=length, shares=spread)
