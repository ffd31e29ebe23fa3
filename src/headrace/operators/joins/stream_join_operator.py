"""How the rows of one side come to the key groups of a join."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

import numpy as np
import polars as pl

from headrace.changelog import CHANGE, DELETE, INSERT
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import Edge
from headrace.event_time.strategy import BEGINNING
from headrace.operators.arrival import ARRIVAL, next_arrival
from headrace.operators.joins.join_columns import JoinedColumns
from headrace.operators.joins.matching import Flags, Places, RowPairs
from headrace.operators.key_order import KEY_NUMBER, with_key_numbers
from headrace.operators.rows import Rows
from headrace.schemas import MOMENT
from headrace.wheel.key_groups import canonical
from headrace.wheel.operator import Combined

LATE, LATE_RIGHT = "late", "late_right"
TIME = "__time"
"""The time of a row in microseconds; a column that holds nothing else does not travel beside it."""


@dataclass(frozen=True)
class JoinInput:
    """One input of a join by time: a row is late when time has passed it, and takes part as long as it is corrected."""

    name: str
    rows: Rows
    joined: Mapping[str, str]
    """The columns that a joined row has of this side, each with its name there; without the key."""
    lateness: Lateness
    leaves_alone: bool
    """Whether a row that meets none leaves too, so that one without a key, which meets none, has to travel."""
    late_output: str
    broadcast = False

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns by their names on this side."""
        return self.rows.key

    @cached_property
    def times(self) -> dict[str, str]:
        """The time column and its name in the joined row, when it can be told from ``TIME``."""
        time = self.rows.time
        return {time: self.joined[time]} if time in self.joined and self.rows.schema[time] == MOMENT else {}

    @cached_property
    def payload(self) -> dict[str, str]:
        """The columns that travel beside key and time, each with its name in the joined row."""
        return {name: joined for name, joined in self.joined.items() if name not in self.times}

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, time and the other columns."""
        return {**self.rows.keys, TIME: pl.Int64(), **{name: self.rows.schema[name] for name in self.payload}}

    @cached_property
    def without_key(self) -> pl.Expr:
        """Whether a row lacks a part of its key, so that it meets none."""
        return reduce(or_, (pl.col(name).is_null() for name in self.key))

    def too_late(self, edge: Edge) -> pl.Expr:
        """Whether a row comes too late even for a correction; what corrects an earlier row is no row of its own."""
        bound = max(edge.late - self.lateness.correctable, BEGINNING)
        return (self.rows.row_time < bound) | self.rows.is_correction

    def partly_late(self, accepted: pl.DataFrame, edge: Edge) -> int:
        """How many accepted rows take part less than they would have in time."""
        return 0

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Set late rows aside, and drop what can neither meet a row nor leave alone."""
        late = rows.select(self.too_late(edge)).to_series()
        some_late = bool(late.any())
        taken = canonical(rows.filter(~late) if some_late else rows, self.key)
        accepted, partly_late = taken.height, self.partly_late(taken, edge)
        if not self.leaves_alone and any(taken[name].null_count() for name in self.key):
            taken = taken.filter(~self.without_key)
        partials = taken.select(*self.key, self.rows.row_time.alias(TIME), *self.payload)
        aside = self.rows.late(rows.filter(late) if some_late else rows.clear(), edge)
        return Combined(partials, aside, accepted, partly_late)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rows stay as they are, in the order of their arrival."""
        return partials


RIGHT = "__right"
PLACE = "__place"
MOST_CHUNKS = 16
"""As long as no row goes, rows are only added; after so many times they are made one piece, for fast access."""
_CHANGES = pl.Series([INSERT, DELETE])


@dataclass(frozen=True)
class StreamJoinOperator(ABC):
    """What joins by time have in common.

    A state row is a row of either side, with nulls in the columns of the other, known by the number of its arrival.
    """

    name: str
    left: JoinInput
    second: JoinInput
    columns: JoinedColumns
    lateness: Lateness
    takes_back: bool

    @property
    def key(self) -> tuple[str, ...]:
        """The left key columns, under whose names the key lies in the state and leaves."""
        return self.left.key

    @property
    def identity(self) -> tuple[str, ...]:
        """The number of a row's arrival."""
        return (ARRIVAL,)

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Left rows."""
        return self.left.partial_schema

    @cached_property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Key, what is known of a row, and the columns of both sides as a joined row names them."""
        known = {RIGHT: pl.Boolean(), TIME: pl.Int64(), ARRIVAL: pl.Int64()}
        # A row's time is known already.
        told = {*self.left.times.values(), *self.second.times.values()}
        both = {**self.columns.left_schema, **self.columns.right_schema}
        payload = {name: dtype for name, dtype in both.items() if name not in told}
        return {**self.columns.key, **known, **self._known, **payload}

    @property
    @abstractmethod
    def _known(self) -> dict[str, pl.DataType]:
        """What else a join knows of a row."""

    @abstractmethod
    def _at_first(self, times: pl.Series) -> dict[str, pl.Series]:
        """What it knows of new rows with these times."""

    @property
    @abstractmethod
    def output_schema(self) -> dict[str, pl.DataType]:
        """The key, what the join adds, and the columns of both sides."""

    @cached_property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """Late rows of each side, when they are kept."""
        if not self.lateness.keeps_rows:
            return {}
        return {side.late_output: side.rows.late_schema for side in (self.left, self.second)}

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Left rows."""
        return self.left.combine(rows, edge)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rows stay as they are."""
        return self.left.merge(partials)

    def _arrived(self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
        """The rows of both inputs as rows of the state, numbered behind all that are there."""
        following = next_arrival(state)
        left, right = partials.height, second.height
        times = pl.concat([partials[TIME], second[TIME]])
        given = {
            RIGHT: pl.Series(np.arange(left + right) >= left),
            ARRIVAL: pl.Series(np.arange(following, following + left + right)),
            TIME: times,
            **self._at_first(times),
        }
        for ours, theirs in zip(self.key, self.second.key, strict=True):
            given[ours] = pl.concat([partials[ours], second[theirs].alias(ours)])
        for name, joined in self.left.payload.items():
            given[joined] = pl.concat([partials[name], self._nothing[joined].new_from_index(0, right).alias(name)])
        for name, joined in self.second.payload.items():
            given[joined] = pl.concat([self._nothing[joined].new_from_index(0, left), second[name].alias(joined)])
        return pl.DataFrame([given[name].alias(name) for name in self.state_schema])

    def _with(self, state: pl.DataFrame, arrived: pl.DataFrame) -> pl.DataFrame:
        """The state with new rows behind it."""
        return pl.concat([state, arrived], rechunk=state.n_chunks() > MOST_CHUNKS)

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        """One row of nulls."""
        return pl.DataFrame({name: [None] for name in self.state_schema}, schema=self.state_schema)

    def _key_numbers(self, rows: pl.DataFrame, turning: Flags) -> Places:
        """The number of each row's key among those that matter, -1 for the others."""
        numbers = np.full(rows.height, -1, dtype=np.int64)
        if turning.any():
            keys = pl.DataFrame([rows[name] for name in self.key])
            found = with_key_numbers(keys.with_row_index(PLACE), self.key, of=keys[np.flatnonzero(turning)])
            numbers[found[PLACE].to_numpy()] = found[KEY_NUMBER].to_numpy()
        return numbers

    def _lacking_key(self, rows: pl.DataFrame) -> Flags:
        """Which rows lack a part of their key, so that they meet none."""
        if any(rows[name].null_count() for name in self.key):
            return rows.select(self.left.without_key).to_series().to_numpy()
        return np.zeros(rows.height, dtype=np.bool_)

    def _rows_of(self, rows: pl.DataFrame, couples: RowPairs, taken: Flags, own: dict[str, pl.Series]) -> pl.DataFrame:
        """RowPairs as rows, some of which are taken back; ``own`` are the columns that the join adds."""
        left, right = couples.left, couples.right
        told = {**own, CHANGE: _CHANGES[taken.view(np.uint8)]}
        some = np.where(left < 0, right, left)
        told |= {series.name: series for series in pl.DataFrame([rows[name] for name in self.key])[some]}
        for side, places in ((self.left, left), (self.second, right)):
            picked = pl.DataFrame([rows[TIME], *(rows[name] for name in side.payload.values())])[_places(places)]
            told |= {name: picked[TIME].cast(MOMENT) for name in side.times.values()}
            told |= {name: picked[name] for name in side.payload.values()}
        return pl.DataFrame([told[name].alias(name) for name in self.output_schema])


def _places(places: Places) -> pl.Series:
    """Places to pick from, null for those that stand for no row."""
    given = pl.Series(places.astype(np.uint32))
    return given.set(pl.Series(places < 0), None) if len(places) and places.min() < 0 else given
