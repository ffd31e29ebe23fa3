"""What interval and window joins share: the step, its inputs, and the buffer of rows from both sides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from headrace.changelog import CHANGE, DELETE, INSERT
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.expressions.operands import Schema
from headrace.key_hash import canonical
from headrace.operators.joins.join_columns import JoinedColumns, JoinKey, joined_columns
from headrace.operators.joins.match_strategies import JoinHow, emits_unmatched
from headrace.operators.joins.matching import BoolArray, Int64Array, RowPairs
from headrace.operators.rows import ARRIVAL, KEY_NUMBER, ROW_NUMBER, TIME, RowByRow, Rows, arrivals, with_key_numbers
from headrace.operators.step import Step
from headrace.operators.windows.assigners import Windows
from headrace.schemas import MOMENT
from headrace.wheel.operator import AnyOperator, Combined, Uncombined

RIGHT = "__right"
_CHANGES = pl.Series([INSERT, DELETE])


@dataclass(frozen=True, kw_only=True, repr=False)
class StreamJoin(Step):
    """A join of two streams by event time; late rows go to the outputs ``late`` and ``late_right``."""

    inputs = ("left", "right")

    on: JoinKey
    how: JoinHow

    def bind(self, schema: Schema, time: str, right_schema: Schema, right_time: str) -> AnyOperator:
        lateness = self._chosen_lateness()
        self.on.check(self.name, schema, right_schema)
        only_left = self.how in ("semi", "anti")
        used = {name: right_schema[name] for name in self.on.right} if only_left else right_schema
        own = {**self._own_columns, **({CHANGE: pl.String()} if self.retracts else {})}
        columns = joined_columns(self.name, self.on, schema, used, own=own)
        emits_left, emits_right = emits_unmatched(self.how)
        left = Rows(self.name, self.on.left, time, dict(schema))
        right = Rows(self.name, self.on.right, right_time, dict(right_schema))
        return self._operator(
            JoinInput(self.name, left, columns.left, lateness, emits_left or self.on.nulls_match, self._windows),
            JoinInput("right", right, columns.right, lateness, emits_right or self.on.nulls_match, self._windows),
            columns,
            own,
        )

    @abstractmethod
    def _operator(self, left: JoinInput, right: JoinInput, columns: JoinedColumns, own: Schema) -> AnyOperator:
        """The step's operator, which adds its own columns to the results."""

    @property
    @abstractmethod
    def _own_columns(self) -> Schema:
        """The columns that the join adds, apart from ``change``."""

    @property
    def _windows(self) -> Windows | None:
        """The windows in which rows match, if there are any."""
        return None

    @property
    def retracts(self) -> bool:
        return self.retention > 0 and any(emits_unmatched(self.how))

    @property
    def previews(self) -> bool:
        return self.retracts


@dataclass(frozen=True)
class JoinInput(RowByRow):
    """One input of a stream join: sets late rows aside and drops rows that can neither match nor be emitted alone."""

    name: str
    rows: Rows
    joined: Mapping[str, str]
    """This side's columns of a joined row without the key: their own name, and their name there."""
    lateness: Lateness
    takes_nulls: bool
    """Whether rows with a null key are emitted, with a match or without one."""
    windows: Windows | None
    """The windows that rows belong to, if there are any: a row is late when its last one accepts no more rows."""

    @cached_property
    def times(self) -> dict[str, str]:
        """The time column and its name in a joined row, where ``TIME`` has all of its value."""
        time = self.rows.time
        return {time: self.joined[time]} if time in self.joined and self.rows.schema[time] == MOMENT else {}

    @cached_property
    def payload(self) -> dict[str, str]:
        """All columns but key and time, each with its name in a joined row."""
        return {name: joined for name, joined in self.joined.items() if name not in self.times}

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return {**self.rows.keys, TIME: pl.Int64(), **{name: self.rows.schema[name] for name in self.payload}}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        correctable, closes, partly_late = self.lateness.correctable, None, 0
        if self.windows is not None:
            closes = self.windows.last(self.windows.pane(self.rows.row_time))
        is_late = self.rows.is_late(bounds, correctable=correctable, closes=closes)
        taken, late = self.rows.split_late(rows, bounds, is_late)
        on_time = canonical(taken, self.key)
        if self.windows is not None and self.windows.overlapping:
            closes = self.windows.first(self.windows.pane(self.rows.row_time))
            is_partly_late = self.rows.is_late(bounds, correctable=correctable, closes=closes)
            partly_late = int(on_time.select(is_partly_late.sum()).item())
        kept = on_time if self.takes_nulls else on_time.drop_nulls(self.key)
        partials = kept.select(*self.key, self.rows.row_time.alias(TIME), *self.payload)
        return Combined(partials, late, on_time.height, partly_late)


@dataclass(frozen=True)
class StreamJoinOperator(Uncombined, ABC):
    """Buffers the rows of both sides in one state: a state row has nulls in the columns of the other side."""

    name: str
    left: JoinInput
    second: JoinInput
    columns: JoinedColumns
    own: Schema
    """The columns that the join adds; ``change`` where results may be retracted."""
    on: JoinKey

    @property
    @abstractmethod
    def own_state(self) -> Schema:
        """The columns that the join adds to a state row."""

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, RIGHT, TIME, ARRIVAL)

    @property
    def key(self) -> tuple[str, ...]:
        return self.left.key

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return self.left.partial_schema

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Key, side, time, arrival, the join's own columns, and the payload of both sides under its joined names.

        The time columns themselves are not stored.
        """
        own = {RIGHT: pl.Boolean(), TIME: pl.Int64(), ARRIVAL: pl.Int64(), **self.own_state}
        times = {*self.left.times.values(), *self.second.times.values()}
        both = {**self.columns.left_schema, **self.columns.right_schema}
        payload = {name: dtype for name, dtype in both.items() if name not in times}
        return {**self.columns.key, **own, **payload}

    @abstractmethod
    def _initial_state(self, arrived: pl.DataFrame) -> pl.DataFrame:
        """The columns that the join adds to a state row, for new rows, which have all others."""

    @abstractmethod
    def _moments(self, moments: Int64Array) -> pl.Series:
        """When each result is, as the column that the join adds."""

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        return {**self.columns.schema, **self.own}

    @cached_property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        if not self.left.lateness.keeps_rows:
            return {}
        return {"late": self.left.rows.late_schema, self.second.late_output: self.second.rows.late_schema}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        return self.left.combine(rows, bounds)

    def _buffered(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> pl.DataFrame:
        """The state with the new rows of both inputs after it."""
        sides = []
        for side, rows in ((self.left, partials), (self.second, second)):
            names = {**dict(zip(side.key, self.key, strict=True)), TIME: TIME, **side.payload}
            sides.append(pl.DataFrame([rows[name].alias(joined) for name, joined in names.items()]))
        arrived = pl.concat(sides, how="diagonal")
        is_right = pl.Series(RIGHT, np.arange(arrived.height) >= partials.height)
        arrived = arrived.hstack([is_right, arrivals(bounds, arrived.height)])
        arrived = arrived.hstack(self._initial_state(arrived))
        return pl.concat([state, pl.DataFrame([arrived[name] for name in self.state_schema])])

    def _key_numbers(self, rows: pl.DataFrame, key: Sequence[str], triggers: BoolArray) -> Int64Array:
        """The number of each row's key among those of the triggering rows, -1 for the others."""
        numbers = np.full(rows.height, -1 if key else 0, dtype=np.int64)
        if key and triggers.any():
            keys = pl.DataFrame([rows[name] for name in key])
            found = with_key_numbers(keys.with_row_index(ROW_NUMBER), key, of=keys[np.flatnonzero(triggers)])
            numbers[found[ROW_NUMBER].to_numpy()] = found[KEY_NUMBER].to_numpy()
        return numbers

    def _without_key(self, rows: pl.DataFrame) -> BoolArray:
        """Which rows have a null in their key, so that they match nothing."""
        if self.on.nulls_match:
            return np.zeros(rows.height, dtype=np.bool_)
        return rows.select(pl.any_horizontal(pl.col(self.key).is_null())).to_series().to_numpy()

    def _results(self, rows: pl.DataFrame, pairs: RowPairs, retracted: int, moments: Int64Array) -> pl.DataFrame:
        """Pairs, of which the first ``retracted`` are retractions, as result rows in the order of their moments."""
        if not len(moments):
            return pl.DataFrame(schema=self.output_schema)
        is_retraction = np.arange(len(moments)) < retracted
        order = np.lexsort((moments, ~is_retraction))
        pairs, moment = pairs[order], self._moments(moments[order])
        columns = {moment.name: moment, CHANGE: _CHANGES[is_retraction[order].view(np.uint8)]}
        columns |= {name: rows[name].gather(pairs.either) for name in self.key}
        for side, numbers in ((self.left, pairs.left), (self.second, pairs.right)):
            picked = pl.DataFrame([rows[TIME], *(rows[name] for name in side.payload.values())])[_indices(numbers)]
            columns |= {name: picked[TIME].cast(MOMENT) for name in side.times.values()}
            columns |= {name: picked[name] for name in side.payload.values()}
        return pl.DataFrame([columns[name].alias(name) for name in self.output_schema])


def _indices(numbers: Int64Array) -> pl.Series:
    """Row numbers to gather by, null for -1."""
    indices = pl.Series(numbers.astype(np.uint32))
    return indices.set(pl.Series(numbers < 0), None) if len(numbers) and numbers.min() < 0 else indices
