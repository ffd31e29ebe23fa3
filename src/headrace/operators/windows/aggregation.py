"""What runs for a window step: partial aggregates by key and window, as whole frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import Edge
from headrace.event_time.strategy import END
from headrace.expressions import Aggregate
from headrace.operators.windows.assigners import Windows
from headrace.wheel.key_hash import canonical
from headrace.wheel.operator import Applied, Combined

START, REVISION, CHANGED = "__start", "__revision", "__changed"
MOMENT = pl.Datetime("us", "UTC")
WINDOW = pl.Struct({"start": MOMENT, "end": MOMENT})


@dataclass(frozen=True)
class WindowAggregation:
    """Aggregates rows by key and window; emits a window when it closes and corrects it while late rows may come.

    A state row is one window of one key: its partial aggregates, and the revision last emitted (null before the
    window has closed).
    """

    name: str
    key: tuple[str, ...]
    time: str
    windows: Windows
    aggregates: tuple[Aggregate, ...]
    lateness: Lateness
    schema: Mapping[str, pl.DataType]
    """Columns of the rows that come in; the time is a timestamp or the window of an earlier step."""

    @property
    def identity(self) -> tuple[str, ...]:
        """A window of a key."""
        return (*self.key, START)

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, window and partial aggregates."""
        columns = {name: self.schema[name] for name in self.key} | {START: pl.Int64()}
        for aggregate in self.aggregates:
            columns |= aggregate.state_types(self.schema)
        return columns

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Partial aggregates with the revision last emitted."""
        return {**self.partial_schema, REVISION: pl.Int32()}

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """Key, window, results, pane and revision."""
        results = {aggregate.name: aggregate.result_type(self.schema) for aggregate in self.aggregates}
        keys = {name: self.schema[name] for name in self.key}
        return {**keys, "window": WINDOW, **results, "pane": pl.String(), "revision": pl.Int32()}

    @cached_property
    def late_schema(self) -> dict[str, pl.DataType] | None:
        """The whole row, and how far its time was behind the watermark."""
        return {**self.schema, "late_by": pl.Duration("us")} if self.lateness.keeps_rows else None

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Assign windows, set rows aside whose window takes nothing any more, and aggregate the others."""
        time = self._time()
        placed = canonical(rows, self.key).with_columns(self.windows.start(time).alias(START))
        accepted, late = placed, rows.clear()
        over = placed.select(self._over(edge.late) | self._is_correction()).to_series()
        if over.any():
            accepted, late = placed.filter(~over), rows.filter(over)
        partials: dict[str, pl.Expr] = {}
        for aggregate in self.aggregates:
            partials |= aggregate.partial(self.schema)
        by = self._telling(accepted)
        start = {} if START in by else {START: pl.col(START).first()}
        combined = accepted.group_by(by).agg(**start, **partials).select(self.partial_schema.keys())
        # At a drain the watermark is the end of time, from which no distance can be told.
        watermark = pl.lit(edge.fire if edge.fire < END else edge.late, pl.Int64)
        how_late = (watermark - time).cast(pl.Duration("us")).alias("late_by")
        return Combined(combined, late.with_columns(how_late), accepted.height)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Partials of the same window become one."""
        return partials.group_by(self.identity).agg(**self._merging()).select(self.partial_schema.keys())

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, edge: Edge) -> Applied:
        """Take rows in, close windows up to ``edge.fire``, correct closed ones, forget those that are over.

        Windows that were closed before this batch (``end <= edge.late``) have been emitted before any of its rows
        is taken in, so their rows are corrections.
        """
        opened, corrections = partials, partials.clear()
        if self.lateness.correctable:
            closed = partials.select(self._end() <= edge.late).to_series()
            opened, corrections = partials.filter(~closed), partials.filter(closed)
        untouched, taken = self._take(state, opened)
        state = pl.concat([untouched, taken])
        due = self.due(state)
        if corrections.is_empty() and (due is None or due > edge.fire):
            # The usual batch: nothing closes and nothing is forgotten.
            return Applied(state, taken, self._nothing.select(self.identity), self._no_output)
        changed = pl.repeat(False, untouched.height, eager=True).append(pl.repeat(True, taken.height, eager=True))
        return self._close(state.with_columns(changed.alias(CHANGED)), corrections, edge)

    def _close(self, state: pl.DataFrame, corrections: pl.DataFrame, edge: Edge) -> Applied:
        """Close windows, correct closed ones and forget those that are over; ``CHANGED`` marks what is not stored."""
        closing = state.select((self._end() <= edge.fire) & pl.col(REVISION).is_null()).to_series()
        outputs = [self._no_output]
        if closing.any():
            outputs.append(self._emitted(state.filter(closing), pane="on_time", revision=pl.lit(0, pl.Int32)))
            state = state.with_columns(
                pl.when(closing).then(0).otherwise(pl.col(REVISION)).cast(pl.Int32).alias(REVISION),
                (pl.col(CHANGED) | closing).alias(CHANGED),
            )
        if not corrections.is_empty():
            state, corrected = self._correct(state, corrections)
            outputs.append(self._emitted(corrected, pane="late", revision=pl.col(REVISION)))
        over = state.select(self._over(edge.fire)).to_series()
        kept = state.filter(~over)
        return Applied(
            kept.drop(CHANGED),
            kept.filter(pl.col(CHANGED)).drop(CHANGED),
            state.filter(over).select(self.identity),
            pl.concat(outputs),
        )

    def due(self, state: pl.DataFrame) -> int | None:
        """The earliest end of an open window, or the earliest moment at which a closed one is forgotten."""
        if state.is_empty():
            return None
        forgotten = pl.when(pl.col(REVISION).is_null()).then(0).otherwise(self.lateness.correctable)
        return int(state.select((self._end() + forgotten).min()).item())

    def _time(self) -> pl.Expr:
        if isinstance(self.schema[self.time], pl.Struct):
            return pl.col(self.time).struct.field("end").cast(pl.Int64) - 1
        return pl.col(self.time).cast(pl.Int64)

    def _end(self) -> pl.Expr:
        return self.windows.end(pl.col(START))

    def _over(self, bound: int) -> pl.Expr:
        """Whether a window takes no rows any more at this bound."""
        return self._end() + self.lateness.correctable <= bound

    def _is_correction(self) -> pl.Expr:
        """Whether a row is an earlier step's correction, which is late for this step whatever window it falls into.

        The first result has been taken in already, so an open window would count both.
        """
        follows_windows = isinstance(self.schema[self.time], pl.Struct) and "pane" in self.schema
        if not follows_windows or self.lateness.correctable:
            return pl.lit(False)
        return pl.col("pane") == "late"

    def _merging(self) -> dict[str, pl.Expr]:
        merging: dict[str, pl.Expr] = {}
        for aggregate in self.aggregates:
            merging |= aggregate.merge(self.schema)
        return merging

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.state_schema)

    @cached_property
    def _no_output(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.output_schema)

    def _telling(self, *frames: pl.DataFrame) -> list[str]:
        """The columns that tell windows apart; the key alone, twice as fast to group by, when all have one start."""
        starts = {start for frame in frames for start in (frame[START].min(), frame[START].max())}
        return list(self.key if self.key and len(starts) == 1 else self.identity)

    def _take(self, state: pl.DataFrame, partials: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Merge partial results into the state: the windows they do not touch, and the others (perhaps a few more)."""
        fresh = partials.with_columns(pl.lit(None, pl.Int32).alias(REVISION))
        if state.is_empty() or partials.is_empty():
            return state, fresh
        untouched, touched = state.clear(), state
        if 2 * partials.height < state.height:
            by = self._telling(state, partials)
            untouched = state.join(partials, on=by, how="anti", nulls_equal=True)
            touched = state.join(partials, on=by, how="semi", nulls_equal=True)
        merging = {**self._merging(), REVISION: pl.col(REVISION).max()}
        merged = pl.concat([touched, fresh]).group_by(self.identity).agg(**merging).select(state.columns)
        return untouched, merged

    def _correct(self, state: pl.DataFrame, corrections: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The state with late rows merged into closed windows, and the windows they corrected."""
        identity = list(self.identity)
        _, taken = self._take(state.drop(CHANGED), corrections)
        corrected = taken.join(corrections, on=identity, how="semi", nulls_equal=True).with_columns(
            (pl.col(REVISION).fill_null(-1) + 1).cast(pl.Int32).alias(REVISION), pl.lit(True).alias(CHANGED)
        )
        earlier = state.join(corrected, on=identity, how="anti", nulls_equal=True)
        return pl.concat([earlier, corrected]), corrected

    def _emitted(self, windows: pl.DataFrame, *, pane: str, revision: pl.Expr) -> pl.DataFrame:
        bounds = pl.struct(pl.col(START).cast(MOMENT).alias("start"), self._end().cast(MOMENT).alias("end"))
        # Windows of one key leave in the order of time, whatever order the state has them in.
        return windows.sort(START).select(
            *self.key,
            bounds.alias("window"),
            *(aggregate.result(self.schema) for aggregate in self.aggregates),
            pl.lit(pane).alias("pane"),
            revision.alias("revision"),
        )
