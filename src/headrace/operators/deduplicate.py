"""Deduplication as an author says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.keys import key_columns
from headrace.operators.corrections import check_final
from headrace.operators.repeats import Deduplication
from headrace.operators.rows import Rows
from headrace.operators.step import Outputs, check_key, place
from headrace.wheel.operator import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True, repr=False)
class Deduplicate:
    """A value that becomes an operator once ``late`` is chosen."""

    name: str
    key: tuple[str, ...]
    within: int
    lateness: Lateness | None = None

    def late(self, lateness: Lateness) -> Self:
        """Choose what happens to late rows; there is no default."""
        why = "a row that has been emitted is not taken back when an earlier one of its key comes late"
        check_final(f"step {self.name!r}", lateness, why)
        return replace(self, lateness=lateness)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The rows of a frame without repeats, for ``frame.transform(step)``."""
        return self.outputs(frame).main

    def outputs(self, frame: DataFrame) -> Outputs:
        """The rows of a frame without repeats and, beside them, its late rows."""
        return place(self, self.bind, frame)

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        """The operator that runs over rows of this schema."""
        if self.lateness is None:
            raise DefinitionError(
                "LATE_NOT_CHOSEN",
                f"step {self.name!r} does not say what happens to late rows, of which it no longer knows whether they "
                "are repeats. Add .late(hr.drop()) or .late(hr.side_output()).",
            )
        check_key(self.name, self.key, schema)
        return Deduplication(self.name, Rows(self.name, self.key, time, dict(schema)), self.within, self.lateness)

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the state to stay valid."""
        return {"kind": "deduplicate", "key": list(self.key), "within": self.within}

    @property
    def horizon(self) -> int:
        """How far apart in event time a row and its repeat may be."""
        return self.within

    @property
    def retention(self) -> int:
        """How long a row's key and time are kept after time has passed it."""
        return self.within

    @property
    def holds(self) -> str:
        """What the state holds and how long, in words."""
        return f"key and time of each row that was kept, until event time is {spoken(self.within)} behind it"

    def __repr__(self) -> str:
        key = self.key[0] if len(self.key) == 1 else list(self.key)
        late = "" if self.lateness is None else f".late({self.lateness!r})"
        return f"hr.deduplicate({self.name!r}, key={key!r}, within={spoken(self.within)!r}){late}"


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
