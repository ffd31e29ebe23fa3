"""The outbox step: the messages that an application writes to an outbox table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.changelog import CHANGE, INSERT, POSITION
from headrace.event_time.record import TimeBounds
from headrace.operators.rows import Rows
from headrace.operators.step import LateRows, Step
from headrace.operators.tables.changelog_input import ChangelogInput, ChangelogOperator, TombstoneRetention
from headrace.stability import experimental
from headrace.wheel.operator import Applied, Combined, Operator

KEY, VALUE = "key", "value"


@dataclass(frozen=True)
class OutboxOperator(ChangelogOperator):
    """Emits each insert at once; messages of one key go through one slot, which keeps them in order."""

    payload: str

    @property
    def output_time(self) -> str:
        """Messages keep the time of their commit."""
        return self.changelog.rows.time

    @cached_property
    def partial_schema(self) -> dict[str, pl.DataType]:
        return {name: dtype for name, dtype in self.changelog.columns.items() if name != CHANGE}

    @property
    def state_schema(self) -> dict[str, pl.DataType]:
        """There is no state."""
        return self.changelog.rows.keys

    @cached_property
    def output_schema(self) -> dict[str, pl.DataType]:
        schema, time = self.partial_schema, self.output_time
        return {KEY: pl.String(), VALUE: schema[self.payload], POSITION: pl.String(), time: schema[time]}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Inserts are messages; later updates and deletes are dropped."""
        changes = super().combine(rows, bounds)
        messages = changes.partials.filter(pl.col(CHANGE) == INSERT).select(self.partial_schema.keys())
        others = changes.accepted - messages.height
        return Combined(messages, changes.late, messages.height, dropped=others, failed=changes.failed)

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        key, value = pl.col(*self.key).cast(pl.String).alias(KEY), pl.col(self.payload).alias(VALUE)
        messages = partials.sort(POSITION, maintain_order=True).select(key, value, POSITION, self.output_time)
        return Applied(state.clear(), state.clear(), messages)


@dataclass(frozen=True, kw_only=True, repr=False)
class Outbox(Step):
    """The messages in the changes of an outbox table."""

    kind = "outbox"
    changelogs = (0,)
    late_rows = LateRows(never="every message leaves in the batch that brings it, so none is late")

    message_key: str
    """The table's key column, which the messages call ``key``."""
    payload: str

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        if not isinstance(schema.get(self.payload), pl.String | pl.Binary):
            found = f"is {schema[self.payload]}" if self.payload in schema else "does not exist"
            message = f"payload column {self.payload!r} {found}. Name one of text, json or bytea."
            raise self._wrong("PAYLOAD_TYPE", message)
        rows = Rows(self.name, (self.message_key,), time, dict(schema))
        needed = (self.message_key, self.payload, POSITION, time, CHANGE)
        columns = {name: dtype for name, dtype in schema.items() if name in needed}
        return OutboxOperator(
            self.name, ChangelogInput(rows, rows.key, columns), TombstoneRetention(None), self.payload
        )

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"key": self.message_key, "payload": self.payload}

    @property
    def state_description(self) -> str:
        return "nothing: every message leaves in the batch that brings it"


@experimental
def outbox(name: str, *, key: str = "aggregate_id", payload: str = "payload") -> Outbox:
    """The messages that an application writes to an outbox table in the transactions that they describe.

    Each insert becomes a row with ``key``, ``value``, ``position`` and the time of its commit. Messages of one key keep
    the order of their commits up to a sink that is partitioned by ``key``. Updates and deletes, such as those that
    clean up the table, are dropped and counted. An insert that a source gives twice is two messages.

    >>> outbox("relay", key="order_id")
    hr.outbox('relay', key='order_id', payload='payload')
    """
    return Outbox(name=name, key=(KEY,), message_key=key, payload=payload)
