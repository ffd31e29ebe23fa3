"""How the rows of one side come to the key groups of a join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

import polars as pl

from headrace.event_time.lateness import Lateness
from headrace.event_time.record import Edge
from headrace.event_time.strategy import BEGINNING
from headrace.operators.rows import Rows
from headrace.schemas import MOMENT
from headrace.wheel.key_hash import canonical
from headrace.wheel.operator import Combined

LATE, LATE_RIGHT = "late", "late_right"
TIME = "__time"
"""The time of a row in microseconds; a column that holds nothing else does not travel beside it."""


@dataclass(frozen=True)
class SideIntake:
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
