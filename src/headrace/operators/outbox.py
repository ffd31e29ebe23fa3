"""An outbox as an author says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.changelog import check_changelog
from headrace.errors import DefinitionError
from headrace.graph import check_name
from headrace.operators.relaying import KEY, Relaying
from headrace.operators.rows import Rows
from headrace.operators.step import Outputs, check_key, place
from headrace.wheel.operator import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True, repr=False)
class Outbox:
    """A value that becomes an operator over the changes of an outbox table."""

    name: str
    message_key: str
    payload: str

    @property
    def key(self) -> tuple[str, ...]:
        """The key column, under its name among the messages."""
        return (KEY,)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The messages in the changes of an outbox table, for ``frame.transform(step)``."""
        return self.outputs(frame).main

    def outputs(self, frame: DataFrame) -> Outputs:
        """The same, as the step's one output."""
        return place(self, self.bind, frame, changelogs=(0,))

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
        return Relaying(self.name, Rows(self.name, (self.message_key,), time, dict(schema)), self.payload)

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the state to stay valid."""
        return {"kind": "outbox", "key": self.message_key, "payload": self.payload}

    @property
    def holds(self) -> str:
        """What the state holds and how long, in words."""
        return "nothing: every message leaves in the batch that brings it"

    def __repr__(self) -> str:
        return f"hr.outbox({self.name!r}, key={self.message_key!r}, payload={self.payload!r})"


def outbox(name: str, *, key: str = "aggregate_id", payload: str = "payload") -> Outbox:
    """The messages that an application writes to an outbox table, in the transactions that they tell of.

    Each insert of the table becomes a row with ``key``, ``value``, ``position`` and the time of its commit; those of
    one key keep the order of their commits up to a sink that is dealt out by ``key``. Updates and deletes of the
    table, as those that clean it up, are dropped and counted. An insert that a source gives twice is two messages.

    >>> outbox("relay", key="order_id")
    hr.outbox('relay', key='order_id', payload='payload')
    """
    check_name("step", name)
    return Outbox(name=name, message_key=key, payload=payload)
