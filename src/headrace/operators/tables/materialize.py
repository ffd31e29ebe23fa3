"""A changelog made a current table, as an author says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.changelog import CHANGELOG, UNCHANGED, check_changelog
from headrace.durations import Duration
from headrace.errors import DefinitionError
from headrace.graph import check_name
from headrace.keys import key_columns, said_key
from headrace.operators.rows import Rows
from headrace.operators.step import Outputs, check_key, place
from headrace.operators.tables.current_table import CurrentTable
from headrace.operators.tables.deleted import WEEK, Deleted, keep_for
from headrace.wheel.operator import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True, repr=False)
class Materialize:
    """A value that is a function of a changelog."""

    name: str
    key: tuple[str, ...]
    deleted: Deleted
    before_images: bool = False
    takes_back: bool = True

    def __call__(self, frame: DataFrame) -> DataFrame:
        """What the changes of a frame do to the table, for ``frame.transform(step)``."""
        return self.outputs(frame).main

    def outputs(self, frame: DataFrame) -> Outputs:
        """What the changes of a frame do to the table."""
        return place(self, self.bind, frame, changelogs=(0,))

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        """The operator that runs over changes of this schema."""
        check_changelog(self.name, schema)
        check_key(self.name, self.key, schema)
        check_row_key(self.name, self.key)
        check_unchanged(self.name, schema)
        return CurrentTable(self.name, Rows(self.name, self.key, time, dict(schema)), self.deleted, self.before_images)

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the state to stay valid."""
        return {"kind": "materialize", "key": list(self.key), "before_images": self.before_images}

    @property
    def holds(self) -> str:
        """What the state holds and how long, in words and as a bound."""
        row = "the row itself" if self.before_images else "the row itself where changes name unchanged columns"
        return f"the last position of each key in the table, and {row}; {self.deleted}; {self.deleted.most(tables=1)}"

    def __repr__(self) -> str:
        images = ", before_images=True" if self.before_images else ""
        return f"hr.materialize({self.name!r}, key={said_key(self.key)!r}{images}{self.deleted.said})"


def materialize(
    name: str, *, key: str | Sequence[str], before_images: bool = False, keep_deleted: Duration | None = WEEK
) -> Materialize:
    """The current table of a changelog, as changes for a sink with ``upsert_on=key``: stale and repeated ones are gone.

    With ``before_images`` an update comes with the old row before it and a deletion has all columns, whatever the
    source told. A deleted key is remembered for ``keep_deleted`` of event time (None: for ever).

    >>> materialize("customers", key="customer_id")
    hr.materialize('customers', key='customer_id')
    """
    check_name("step", name)
    return Materialize(name=name, key=key_columns(key), deleted=keep_for(keep_deleted), before_images=before_images)


def check_row_key(step: str, key: Sequence[str]) -> None:
    """A primary key has columns, and they are the table's own."""
    if not key:
        raise DefinitionError(
            "KEY_MISSING", f"step {step!r}: rows of a table are told apart by its primary key. Name its columns."
        )
    own = [name for name in key if name in (*CHANGELOG, UNCHANGED)]
    if own:
        raise DefinitionError(
            "COLUMN_RESERVED",
            f"step {step!r}: column {own[0]!r} says what a row of the changelog does, so it cannot be a key.",
        )


def check_unchanged(step: str, schema: Mapping[str, pl.DataType]) -> None:
    """The column of unchanged columns holds their names."""
    if UNCHANGED in schema and schema[UNCHANGED] != pl.List(pl.String()):
        raise DefinitionError(
            "COLUMN_RESERVED",
            f"step {step!r}: column {UNCHANGED!r} of a changelog is ARRAY<STRING> and names the columns whose values "
            f"were not sent, but here it is {schema[UNCHANGED]}. Rename the column.",
        )
