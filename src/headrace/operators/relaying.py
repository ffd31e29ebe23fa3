"""The messages of an outbox table: its inserts, by key and in the order of their commits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import CHANGE, INSERT, POSITION
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import Rows
from headrace.operators.tables.changelog_input import ChangelogInput
from headrace.wheel.operator import Applied, Combined, Due

KEY, VALUE = "key", "value"


@dataclass(frozen=True)
class OutboxOperator:
    """Hands on each insert at once; the wheel brings the messages of a key together, so that nothing parts them."""

    name: str
    rows: Rows
    payload: str

    @property
    def key(self) -> tuple[str, ...]:
        """The column with the message's key."""
        return self.rows.key

    @property
    def identity(self) -> tuple[str, ...]:
        """Nothing is kept."""
        return self.key

    @property
    def output_time(self) -> str:
        """Messages keep the time of their commit."""
        return self.rows.time

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Key, payload, place among all changes, and time."""
        return {name: self.rows.schema[name] for name in (*self.key, self.payload, POSITION, self.rows.time)}

    @cached_property
    def _intake(self) -> ChangelogInput:
        return ChangelogInput(self.rows, self.key, {**self.partial_schema, CHANGE: pl.String()})

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        """Nothing is kept."""
        return self.rows.keys

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        """A message as sinks take it."""
        schema, time = self.rows.schema, self.rows.time
        return {KEY: pl.String(), VALUE: schema[self.payload], POSITION: pl.String(), time: schema[time]}

    @property
    def side_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """No change of a table is late: all of them are messages, in the order of their positions."""
        return {}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Inserts are messages; what becomes of them in the table afterwards is not."""
        changes = self._intake.combine(rows, bounds)
        messages = changes.partials.filter(pl.col(CHANGE) == INSERT).select(self.partial_schema.keys())
        others = changes.accepted - messages.height
        return Combined(messages, changes.late, messages.height, dropped=others, failed=changes.failed)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Nothing to sum up."""
        return partials

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """All messages of the batch, in the order of their positions."""
        key, value = pl.col(*self.key).cast(pl.String).alias(KEY), pl.col(self.payload).alias(VALUE)
        messages = partials.sort(POSITION, maintain_order=True).select(key, value, POSITION, self.rows.time)
        return Applied(state, state.clear(), state.clear(), messages)

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """Nothing waits."""
        return Due()
