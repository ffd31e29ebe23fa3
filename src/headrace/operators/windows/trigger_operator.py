"""Windows with triggers: rows wait until event time has passed them and are then added in event-time order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import END as END_OF_TIME
from headrace.key_hash import canonical
from headrace.operators.event_time_buffer import OF_KEY, RELEASED_AT, EventTimeBuffer, TouchedKeys
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, TIME
from headrace.operators.windows.aggregation import GIVEN, REVISION, SHOWN_AS, WindowOperator
from headrace.operators.windows.emission import UNSEEN
from headrace.operators.windows.trigger_program import MET, SINCE, Timeline, TriggerProgram
from headrace.operators.windows.triggers import AfterRows, Every, Trigger, When
from headrace.wheel.operator import Applied, Combined, Due, Uncombined

ROW, ASKED = "__row", "__asked"
"""The columns of a waiting row that the aggregates read, and whether it meets the trigger's condition."""
FIRST = "__first"
"""When the window of a key began; ``UNSEEN`` is how many rows came since it fired, ``REVISION`` how often it fired."""
LIFE, PIECE, FIRES = "__life", "__piece", "__fires"
LAST_OF_LIFE = (pl.col(LIFE) != pl.col(LIFE).shift(-1)).fill_null(True)
_BEGINS, _ROWS, _FIRED_AT = "__begins", "__rows", "__fired_at"
_LONG_AFTER = 2**62
END, NUMBER = "__end", "__number"
"""Of a result: the end of its window, and its place among all results of a batch."""


@dataclass(frozen=True)
class TriggerOperator(WindowOperator, Uncombined):
    """Aggregates the rows of a key and emits when a trigger fires, and when the key's time to live is over.

    A key lives from its first row until ``ttl`` has passed since its last one. A piece is the rows of a lifetime up to
    a firing, or after the last firing. A state row is a waiting row, or a key with the time of its last row.
    """

    trigger: Trigger | None
    """None for a window that is only emitted when its key expires."""
    ttl: int | None
    closing: bool = False
    """Whether a firing closes the window, so that the next row begins another."""
    order = (NUMBER,)
    identified_by = (ARRIVAL,)
    moved = (END,)

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        met = {} if self._program is None else {MET: pl.UInt32()}
        return {**self.aggregation.keys, TIME: pl.Int64(), ROW: self._row, ASKED: pl.Boolean(), **met}

    @cached_property
    def _program(self) -> TriggerProgram | None:
        """The trigger, where it is made of others."""
        if self.trigger is None or isinstance(self.trigger, AfterRows | Every | When):
            return None
        return TriggerProgram.of(self.trigger)

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        numbers = dict.fromkeys((ARRIVAL, FIRST, UNSEEN, *(() if self._program is None else (SINCE,))), pl.Int64())
        return {**self.partial_schema, **numbers, **self.aggregation.states, **self._ledger}

    @property
    def _window(self) -> tuple[pl.Expr, pl.Expr]:
        return pl.col(FIRST), pl.col(END)

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        aggregation = self.aggregation
        accepted, late = aggregation.split_late(rows, bounds)
        asked = pl.lit(None, pl.Boolean)
        if isinstance(self.trigger, When):
            asked = self.trigger.condition.truth(aggregation.schema)
        shuffled = accepted.select(
            *self.key,
            aggregation.row_time.alias(TIME),
            pl.struct(field.name for field in self._row.fields).alias(ROW),
            asked.alias(ASKED),
            *([] if self._program is None else [self._program.met(aggregation.schema).alias(MET)]),
        )
        return Combined(canonical(shuffled, self.key), late, accepted.height)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Keep rows that wait, add those that event time has passed, fire, and drop expired keys."""
        buffered = EventTimeBuffer(self.state_schema).release(state, partials, bounds)
        touched = TouchedKeys.of(self.key, buffered.rows, state, self._due(bounds) <= bounds.fire)
        if touched.keys.is_empty():
            # The usual batch while the watermark stands: no row is added and nothing is due.
            return Applied(buffered.stored, state.clear().select(self.identity), self._no_output)
        released = buffered.rows.with_columns(pl.Series(KEY_NUMBER, touched.numbers))
        pieces = self._cut(pl.concat([touched.states, released], how="diagonal"), bounds)
        if self.accumulation.kind != "discarding":
            pieces = self._running(pieces)
        over = (self._ends(bounds) <= bounds.fire).fill_null(False)
        fired = pl.col(FIRES).cum_sum().over(LIFE) + pl.col(REVISION).first().over(LIFE).fill_null(0)
        start = pl.col(FIRST) if self.accumulation.kind == "discarding" else pl.col(FIRST).first().over(LIFE)
        pieces = pieces.with_columns(fired.cast(pl.Int32).alias(REVISION), start.alias(FIRST))
        emitted = self._emitted(pieces, LAST_OF_LIFE & over, bounds)
        living = self._living(pieces.filter(LAST_OF_LIFE & ~over), emitted)
        gone = touched.states.join(living, on=self.identity, how="anti", nulls_equal=True)
        return Applied(
            pl.concat([living, buffered.stored]),
            gone.select(self.identity),
            self._sorted(self._revisions(emitted), NUMBER),
        )

    def due(self, bounds: TimeBounds) -> Due:
        """When a waiting row is released, or a key fires or expires."""
        return Due(pl.coalesce(RELEASED_AT, self._due(bounds)), dead_at=RELEASED_AT, written_once=True)

    @cached_property
    def _row(self) -> pl.Struct:
        aggregation = self.aggregation
        return pl.Struct({name: dtype for name, dtype in aggregation.schema.items() if name in aggregation.read})

    def _emitted(self, pieces: pl.DataFrame, over: pl.Expr, bounds: TimeBounds) -> pl.DataFrame:
        """Results by key and in order, each with the revision before and, when retracting, the result before."""
        columns = [PIECE, LIFE, *self.key, FIRST, *self._computed_from, REVISION, *self._given.values()]
        is_told = ~pl.col(FIRES) & (pl.col(UNSEEN) > 0) if self.accumulation.kind == "discarding" else pl.lit(True)
        if self.emission.kind == "early_only":
            is_told = pl.lit(False)
        fires_at = self._fires_at if self._program is None else pl.col(_FIRED_AT)
        early = "on_time" if self.closing else "early"
        found = [
            pieces.filter(chosen)
            .with_columns(end.alias(END), pl.lit(pane).alias(SHOWN_AS), pl.col(REVISION) - following)
            .select(columns)
            for chosen, end, pane, following in (
                (pl.col(FIRES), fires_at, early, 2),
                (over & is_told, self._ends(bounds), "on_time", 1),
            )
        ]
        emitted = pl.concat(found).sort(PIECE, maintain_order=True)
        again = (pl.col(REVISION) >= 0) & (not self.closing)
        follows = pl.col(LIFE) == pl.col(LIFE).shift()
        changes = self._given.items()
        before = (pl.when(follows).then(pl.col(now).shift()).otherwise(old).alias(old) for now, old in changes)
        return emitted.with_row_index(NUMBER).with_columns(pl.when(again).then(REVISION).alias(REVISION), *before)

    def _living(self, pieces: pl.DataFrame, emitted: pl.DataFrame) -> pl.DataFrame:
        """The state rows of keys that live on, from the last piece of each."""
        if self.closing:
            pieces = pieces.filter(~pl.col(FIRES))
        after_firing: dict[str, int | None] = {UNSEEN: 0}
        if self.accumulation.kind == "discarding":
            after_firing |= dict.fromkeys((FIRST, *self.aggregation.states))
        if self._program is not None:
            after_firing |= dict.fromkeys((SINCE, MET))
        if self._has_change:
            given = emitted.group_by(LIFE).agg(pl.col(*self._computed_from).last().name.suffix(GIVEN))
            pieces = pieces.update(given, on=LIFE, include_nulls=True)
        return pieces.with_columns(
            *(pl.when(FIRES).then(value).otherwise(pl.col(name)).alias(name) for name, value in after_firing.items()),
            pl.lit(OF_KEY, pl.Int64).alias(ARRIVAL),
            pl.lit(None, self._row).alias(ROW),
            pl.lit(None, pl.Boolean).alias(ASKED),
        ).select(self.state_schema.keys())

    def _ends(self, bounds: TimeBounds) -> pl.Expr:
        """When a lifetime ends unless another row comes; without a time to live it ends at the end of time."""
        if self.ttl is not None:
            return pl.col(TIME) + self.ttl
        if bounds.fire < END_OF_TIME:
            return pl.lit(None, pl.Int64)
        # A time that is not late for the next step, which has seen everything before ``bounds.before``.
        return pl.max_horizontal(pl.col(TIME), pl.lit(bounds.before, pl.Int64)) + 1

    @property
    def _fires_at(self) -> pl.Expr:
        """When a piece that ends with a row fires: at once, or at the next multiple of the duration."""
        if isinstance(self.trigger, Every):
            return (pl.col(TIME) // self.trigger.length + 1) * self.trigger.length
        return pl.col(TIME) + 1

    def _due(self, bounds: TimeBounds) -> pl.Expr:
        """When a key fires or expires without further rows."""
        firing = pl.lit(None, pl.Int64)
        if isinstance(self.trigger, Every):
            firing = pl.when(pl.col(UNSEEN) > 0).then(self._fires_at)
        if self._program is not None:
            firing = self._program.due(pl.col(REVISION).fill_null(0))
        return pl.min_horizontal(firing, self._ends(bounds))

    def _cut(self, rows: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        """Pieces with their partial aggregates, by key and time, from the state of keys and the rows to add now."""
        other_key = pl.col(KEY_NUMBER) != pl.col(KEY_NUMBER).shift()
        silent = pl.lit(False) if self.ttl is None else pl.col(TIME).diff() >= self.ttl
        of_key = pl.col(ARRIVAL) == OF_KEY
        ordered = (
            rows.sort(KEY_NUMBER, TIME, ARRIVAL)
            .with_columns((other_key | silent).fill_null(True).alias(_BEGINS))
            .with_columns(pl.when(of_key).then(pl.col(UNSEEN)).otherwise(1).alias(_ROWS))
            .with_columns(pl.col(_BEGINS).cum_sum().alias(LIFE))
            .pipe(self._with_firings, bounds)
            .with_columns((pl.col(_BEGINS) | pl.col(FIRES).shift(1, fill_value=True)).cum_sum().alias(PIECE))
        )
        began = pl.when(of_key).then(pl.col(FIRST)).otherwise(pl.col(TIME))
        computed = (*self.key, ARRIVAL, TIME, ROW, ASKED, MET, SINCE, FIRST, UNSEEN, *self.aggregation.states)
        since_firing = []
        if self._program is not None:
            since = pl.when(of_key).then(pl.col(SINCE)).otherwise(pl.col(TIME)).min().alias(SINCE)
            since_firing = [since, pl.col(MET).bitwise_or(), pl.col(_FIRED_AT).last()]
        carried = (name for name in rows.columns if name not in computed)
        pieces = ordered.group_by(PIECE, maintain_order=True).agg(
            *(pl.col(name).first() for name in (*self.key, LIFE, *carried)),
            pl.col(TIME).last(),
            pl.col(FIRES).last(),
            began.min().alias(FIRST),
            pl.col(_ROWS).sum().alias(UNSEEN),
            *since_firing,
        )
        return pieces.join(self._totals_of(ordered), on=PIECE, how="left", maintain_order="left")

    def _running(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Pieces with the running totals of their lifetime, in rounds: as many as the logarithm of the firings."""
        states = list(self.aggregation.states)
        totals = pieces.select(PIECE, LIFE, *states)
        longest = int(pieces.select(pl.len().over(LIFE).max()).item())
        distance = 1
        while distance < longest:
            reaching = totals.filter(pl.col(LIFE) == pl.col(LIFE).shift(-distance))
            both = pl.concat([reaching.with_columns(pl.col(PIECE) + distance), totals])
            totals = both.group_by(PIECE).agg(pl.col(LIFE).last(), **self.aggregation.merged).sort(PIECE)
            distance *= 2
        return pieces.with_columns(totals.select(states))

    def _with_firings(self, ordered: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
        """The rows to add with whether something fires after each of them; a combined trigger also says when."""
        if self._program is None:
            return ordered.with_columns((self._fires(bounds) & (pl.col(_ROWS) > 0)).alias(FIRES))
        of_key = pl.col(ARRIVAL) == OF_KEY
        given = ordered.select(
            LIFE,
            TIME,
            _ROWS,
            pl.when(of_key).then(pl.col(SINCE)).otherwise(pl.col(TIME)).fill_null(pl.col(TIME)).alias(SINCE),
            pl.col(MET).fill_null(0),
            pl.col(REVISION).fill_null(0).cast(pl.Int64),
            self._ends(bounds).fill_null(_LONG_AFTER).alias(END),
        )
        lives, times, counts, since, met, fired, ends = (column.to_numpy() for column in given)
        firings = self._program.fire(Timeline(lives, times, counts, since, met, fired, ends, bounds.fire))
        return ordered.with_columns(pl.Series(FIRES, firings.places >= 0), pl.Series(_FIRED_AT, firings.times))

    def _fires(self, bounds: TimeBounds) -> pl.Expr:
        match self.trigger:
            case AfterRows(rows):
                return pl.col(_ROWS).cum_sum().over(LIFE) % rows == 0
            case When():
                return pl.col(ASKED).fill_null(False)
            case Every():
                reached = (self._fires_at <= bounds.fire) & (self._fires_at < self._ends(bounds)).fill_null(True)
                return pl.when(LAST_OF_LIFE).then(reached).otherwise(self._fires_at != self._fires_at.shift(-1))
            case _:
                return pl.lit(False)

    def _totals_of(self, ordered: pl.DataFrame) -> pl.DataFrame:
        taken = ordered.filter(pl.col(ARRIVAL) != OF_KEY).select(PIECE, ROW).unnest(ROW)
        fresh = taken.group_by(PIECE).agg(**self.aggregation.partial)
        # A key without a first time has emitted and discarded everything.
        something = (pl.col(ARRIVAL) == OF_KEY) & pl.col(FIRST).is_not_null()
        kept = ordered.filter(something).select(PIECE, *self.aggregation.states)
        if kept.is_empty():
            return fresh
        return pl.concat([kept, fresh]).group_by(PIECE).agg(**self.aggregation.merged)
