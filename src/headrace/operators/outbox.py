"""An outbox as an author says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.changelog import check_changelog
from headrace.errors import DefinitionError
from headrace.graph import check_name
from headrace.operators.relaying import KEY, OutboxOperator
from headrace.operators.rows import Rows
from headrace.operators.step import LateRows, Step, check_key
from headrace.wheel.operator import Operator


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
        """The operator that runs over rows of this schema."""
        check_changelog(self.name, schema)
        check_key(self.name, (self.message_key,), schema)
        if not isinstance(schema.get(self.payload), pl.String | pl.Binary):
            found = f"is {schema[self.payload]}" if self.payload in schema else "does not exist"
            raise DefinitionError(
                "PAYLOAD_TYPE",
                f"step {self.name!r}: payload column {self.payload!r} {found}, but a message is text or bytes. Name a "
                "column of type text, json or bytea, as in payload='payload'.",
            )
        return OutboxOperator(self.name, Rows(self.name, (self.message_key,), time, dict(schema)), self.payload)

    @property
    def _identity(self) -> Mapping[str, object]:
        return {"key": self.message_key, "payload": self.payload}

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words."""
        return "nothing: every message leaves in the batch that brings it"

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"key": self.message_key, "payload": self.payload}


def outbox(name: str, *, key: str = "aggregate_id", payload: str = "payload") -> Outbox:
    """The messages that an application writes to an outbox table, in the transactions that they tell of.

    Each insert of the table becomes a row with ``key``, ``value``, ``position`` and the time of its commit; those of
    one key keep the order of their commits up to a sink that is dealt out by ``key``. Updates and deletes of the
    table, as those that clean it up, are dropped and counted. An insert that a source gives twice is two messages.

    >>> outbox("relay", key="order_id")
    hr.outbox('relay', key='order_id', payload='payload')
    """
    check_name("step", name)
    return Outbox(name=name, key=(KEY,), message_key=key, payload=payload)
