"""Windows with triggers: rows wait until event time has passed them and are then added in event-time order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import ARRIVAL, arrived_rows, next_arrival, split_matching
from headrace.operators.windows.aggregation import (
    GIVEN,
    INSERT_OR_UPDATE,
    REVISION,
    Aggregation,
    WindowOperator,
    as_given,
)
from headrace.operators.windows.emission import AccumulationMode, Trigger, When
from headrace.operators.windows.key_lifetimes import (
    ASKED,
    FIRES,
    FIRST,
    KEPT,
    LIFE,
    PIECE,
    ROW,
    TIME,
    UNSEEN,
    KeyLifetimes,
)
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Applied, Combined, Due, Uncombined

END, PANE = "__end", "__pane"


@dataclass(frozen=True)
class TriggerOperator(WindowOperator, Uncombined):
    """Aggregates the rows of a key and emits when a trigger fires, and when the key's time to live is over.

    A state row is a waiting row, or stands for a key: its partial aggregates (since it fired last, when discarding),
    its first and last time, and how often it has fired.
    """

    name: str
    aggregation: Aggregation
    trigger: Trigger
    ttl: int | None
    accumulation: AccumulationMode
    lateness: Lateness
    closing: bool = False
    """Whether a firing closes the window, so that the next row begins another."""

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, ARRIVAL)

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, time, the columns that the aggregates read, and whether the row meets the trigger's condition."""
        return {**self.aggregation.keys, TIME: pl.Int64(), ROW: self._row, ASKED: pl.Boolean()}

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        given = {END: pl.Int64(), **self.aggregation.states} if self._has_change else {}
        return {
            **self.partial_schema,
            ARRIVAL: pl.Int64(),
            FIRST: pl.Int64(),
            UNSEEN: pl.Int64(),
            REVISION: pl.Int32(),
            **self.aggregation.states,
            **{f"{name}{GIVEN}": dtype for name, dtype in given.items()},
        }

    @property
    def _window(self) -> tuple[pl.Expr, pl.Expr]:
        return pl.col(FIRST), pl.col(END)

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Set late rows aside; the others are shuffled one by one."""
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
        )
        return Combined(canonical(shuffled, self.key), late, accepted.height)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """Keep rows that wait, add those that event time has passed, fire, and drop expired keys."""
        arrived = arrived_rows(partials, next_arrival(state), self.state_schema)
        kept = state.filter(pl.col(ARRIVAL) == KEPT)
        waiting = state.filter(pl.col(ARRIVAL) != KEPT)
        passed = pl.col(TIME) < bounds.fire
        taken = waiting.filter(passed)
        untouched, touched = self._concerned(kept, pl.concat([taken, arrived.filter(passed)]), bounds)
        if touched.is_empty():
            # The usual batch while the watermark stands: no row is added and nothing is due.
            return Applied(pl.concat([state, arrived]), arrived, state.clear().select(self.identity), self._no_output)
        pieces = self._lifetimes.cut(touched, bounds)
        if self.accumulation.kind != "discarding":
            pieces = self._lifetimes.running(pieces)
        last = (pl.col(LIFE) != pl.col(LIFE).shift(-1)).fill_null(True)
        over = (self._lifetimes.ends(bounds) <= bounds.fire).fill_null(False)
        fired = pl.col(FIRES).cum_sum().over(LIFE) + pl.col(REVISION).first().over(LIFE).fill_null(0)
        start = pl.col(FIRST) if self.accumulation.kind == "discarding" else pl.col(FIRST).first().over(LIFE)
        pieces = pieces.with_columns(fired.cast(pl.Int32).alias(REVISION), start.alias(FIRST))
        emitted = self._emitted(pieces, last & over, bounds)
        living = self._living(pieces.filter(last & ~over), emitted)
        gone = touched.filter(pl.col(ARRIVAL) == KEPT).join(living, on=self.identity, how="anti", nulls_equal=True)
        still_waiting = arrived.filter(~passed)
        return Applied(
            pl.concat([untouched, living, waiting.filter(~passed), still_waiting]),
            pl.concat([living, still_waiting]),
            pl.concat([gone, taken]).select(self.identity),
            self._output(emitted),
        )

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest time at which a row is added, or a key fires or expires."""
        return Due(state.select(self._lifetimes.due(bounds).min()).item())

    @cached_property
    def _row(self) -> pl.Struct:
        """The columns that the aggregates read."""
        aggregation = self.aggregation
        return pl.Struct({name: dtype for name, dtype in aggregation.schema.items() if name in aggregation.read})

    @cached_property
    def _lifetimes(self) -> KeyLifetimes:
        return KeyLifetimes(self.aggregation, self.trigger, self.ttl)

    def _concerned(
        self, kept: pl.DataFrame, rows: pl.DataFrame, bounds: TimeBounds
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The keys to which nothing happens; and the others, with the rows that are added now."""
        due = kept.select((self._lifetimes.due(bounds) <= bounds.fire).fill_null(False)).to_series()
        waked, quiet = kept.filter(due), kept.filter(~due)
        if rows.is_empty() or quiet.is_empty():
            return quiet, pl.concat([waked, rows])
        keys = rows.select(*self.key, pl.lit(KEPT, pl.Int64).alias(ARRIVAL))
        untouched, touched = split_matching(quiet, keys, self.identity)
        return untouched, pl.concat([waked, touched, rows])

    def _emitted(self, pieces: pl.DataFrame, over: pl.Expr, bounds: TimeBounds) -> pl.DataFrame:
        """Results by key and in order; when retracting, also the last result that was emitted before."""
        columns = [PIECE, LIFE, *self.key, FIRST, END, *self.aggregation.states, PANE, REVISION]
        firing = pieces.filter(FIRES).with_columns(
            self._lifetimes.fires_at.alias(END),
            pl.lit("on_time" if self.closing else "early").alias(PANE),
            (pl.lit(0, pl.Int32) if self.closing else pl.col(REVISION) - 1).alias(REVISION),
        )
        is_told = ~pl.col(FIRES) & (pl.col(UNSEEN) > 0) if self.accumulation.kind == "discarding" else pl.lit(True)
        last = pieces.filter(over).filter(is_told)
        last = last.with_columns(
            self._lifetimes.ends(bounds).alias(END),
            pl.lit("on_time").alias(PANE),
            (pl.lit(0, pl.Int32) if self.closing else pl.col(REVISION)).alias(REVISION),
        )
        found = [firing.select(columns), last.select(columns)]
        if self._has_change:
            before = pieces.filter(pl.col(f"{END}{GIVEN}").is_not_null()).with_columns(
                *as_given((END, *self.aggregation.states)),
                pl.lit(None, pl.String).alias(PANE),
                (pl.col(REVISION) - pl.col(FIRES).cast(pl.Int32) - 1).alias(REVISION),
            )
            found.insert(0, before.select(columns))
        return pl.concat(found).sort(PIECE, maintain_order=True)

    def _living(self, pieces: pl.DataFrame, emitted: pl.DataFrame) -> pl.DataFrame:
        """The state rows of keys that live on, from the last piece of each."""
        if self.closing:
            pieces = pieces.filter(~pl.col(FIRES))
        reset = [UNSEEN]
        if self.accumulation.kind == "discarding":
            reset += [FIRST, *self.aggregation.states]
        if self._has_change:
            given = emitted.group_by(LIFE).agg(pl.col(END, *self.aggregation.states).last().name.suffix(GIVEN))
            pieces = pieces.drop(given.drop(LIFE).columns).join(given, on=LIFE, how="left")
        return pieces.with_columns(
            *(
                pl.when(~pl.col(FIRES)).then(pl.col(name)).otherwise(0 if name == UNSEEN else None).alias(name)
                for name in reset
            ),
            pl.lit(KEPT, pl.Int64).alias(ARRIVAL),
            pl.lit(None, self._row).alias(ROW),
            pl.lit(None, pl.Boolean).alias(ASKED),
        ).select(self.state_schema.keys())

    def _output(self, emitted: pl.DataFrame) -> pl.DataFrame:
        """Result rows; when retracting, each after the retraction of the one before."""
        if not self._has_change:
            return self._results(emitted, pl.col(PANE))
        number = "__number"
        after = emitted.with_row_index(number).with_columns(INSERT_OR_UPDATE.alias("change"))
        replaced = (pl.col(LIFE) == pl.col(LIFE).shift(-1)).fill_null(False)
        before = after.with_columns(pl.col(PANE).shift(-1), pl.lit("update_before").alias("change")).filter(replaced)
        given_now = after.filter(pl.col(PANE).is_not_null()).with_columns(pl.col(number) * 2)
        both = pl.concat([before.with_columns(pl.col(number) * 2 + 1), given_now]).sort(number)
        return self._results(both, pl.col(PANE), pl.col("change"))
