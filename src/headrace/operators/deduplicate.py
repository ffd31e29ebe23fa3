"""Deduplication as an author says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.graph import check_name
from headrace.keys import key_columns, said_key
from headrace.operators.repeats import DeduplicateOperator
from headrace.operators.rows import Rows
from headrace.operators.step import FINAL, LateRows, Step, check_key
from headrace.wheel.operator import Operator


@dataclass(frozen=True, kw_only=True, repr=False)
class Deduplicate(Step):
    """Deduplication by key within a time; call ``.late()`` before use."""

    kind = "deduplicate"
    late_rows = LateRows(
        FINAL,
        consequence="of which it no longer knows whether they are repeats",
        uncorrectable="a row that has been emitted is not retracted when an earlier one of its key comes late",
    )

    within: int

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        """The operator that runs over rows of this schema."""
        lateness = self._chosen_lateness()
        check_key(self.name, self.key, schema)
        return DeduplicateOperator(self.name, Rows(self.name, self.key, time, dict(schema)), self.within, lateness)

    @property
    def _identity(self) -> Mapping[str, object]:
        return {"key": list(self.key), "within": self.within}

    @property
    def horizon(self) -> int:
        """How far apart in event time a row and its repeat may be."""
        return self.within

    @property
    def retention(self) -> int:
        """How long a row's key and time are kept after time has passed it."""
        return self.within

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words."""
        return f"key and time of each row that was kept, until event time is {spoken(self.within)} behind it"

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {"key": said_key(self.key), "within": spoken(self.within)}


def deduplicate(name: str, *, key: str | Sequence[str], within: Duration) -> Deduplicate:
    """The first row of every key; further rows of the key less than ``within`` from it are dropped and counted.

    >>> from headrace.event_time.lateness import drop
    >>> deduplicate("once", key="payment_id", within="1 hour").late(drop())
    hr.deduplicate('once', key='payment_id', within='1 hour').late(hr.drop())
    """
    check_name("step", name)
    columns = key_columns(key)
    if not columns:
        raise DefinitionError(
            "KEY_MISSING",
            f"step {name!r}: without a key all rows would be repeats of the first. Name the columns that make two rows "
            "the same, as in key='payment_id'.",
        )
    return Deduplicate(name=name, key=columns, within=positive_microseconds(within, argument="within"))
