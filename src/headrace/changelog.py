"""Changelogs: flat rows that describe changes of a table, in the form that all sources, steps and sinks share.

A changelog has the table's own columns, ``change``, ``position`` and an event time. An update is two rows of one
position, before and after; without a before image it is ``update_after`` alone. An update that changes the primary key
is a ``delete`` of the old key and an ``insert`` of the new one. A ``delete`` has at least the key columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import polars as pl

from headrace.errors import DefinitionError
from headrace.schemas import MOMENT

CHANGE = "change"
"""The column that says what a row does to its key."""
POSITION = "position"
"""The column that orders changes: text that sorts as the changes happened, such as a zero-padded offset."""
UNCHANGED = "unchanged"
"""The column, where a source has it, that names the columns whose values were not sent because they stayed the same."""
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "insert", "update_before", "update_after", "delete"
SETTING, REMOVING = (INSERT, UPDATE_AFTER), (DELETE, UPDATE_BEFORE)
"""Changes that set the row of a key, and changes that remove it."""
CHANGES = (*SETTING, *REMOVING)
CHANGELOG: Mapping[str, pl.DataType] = {CHANGE: pl.String(), POSITION: pl.String()}
"""The columns that make rows a changelog, beside the table's own and the event time."""
COMMITTED_AT, TRANSACTION = "committed_at", "transaction"
DATABASE_CHANGELOG: Mapping[str, pl.DataType] = {
    **CHANGELOG,
    COMMITTED_AT: MOMENT,
    TRANSACTION: pl.String(),
    UNCHANGED: pl.List(pl.String()),
}
"""The columns that the changelog of a database's table has beside the table's own."""
OnTruncate = Literal["dead_letter", "stop"]
"""What a source does when its table is truncated, which a changelog cannot express."""
_DIGITS = 20


def sortable(number: pl.Expr) -> pl.Expr:
    """A number that is not negative, such as an offset or a version, as a position: with leading zeros."""
    return number.cast(pl.String).str.zfill(_DIGITS)


def is_setting() -> pl.Expr:
    """Whether a change sets the row of its key; otherwise it removes it."""
    return pl.col(CHANGE).is_in(SETTING)


def check_free(columns: Iterable[str], place: str, advice: str, taken: Iterable[str] = DATABASE_CHANGELOG) -> None:
    """Refuse columns of a table that have the names of those that a changelog adds."""
    found = sorted(set(taken) & set(columns))
    if found:
        raise DefinitionError("COLUMN_EXISTS", f"{place}: {found[0]!r} is also a column of every changelog. {advice}.")


def check_changelog(
    step: str, schema: Mapping[str, pl.DataType], *, side: str = "the rows", placed: bool = True
) -> None:
    """Check that a step that takes a changelog gets one; ``placed`` says whether its changes need a position."""
    needed = CHANGELOG if placed or POSITION in schema else {CHANGE: CHANGELOG[CHANGE]}
    wrong = [name for name, dtype in needed.items() if schema.get(name) != dtype]
    if wrong:
        found = ", ".join(f"{name} {schema[name]}" if name in schema else f"no {name}" for name in wrong)
        raise DefinitionError(
            "CHANGELOG_EXPECTED",
            f"step {step!r} takes a changelog, but {side} have {found}. It needs STRING columns {CHANGE!r} "
            f"({', '.join(CHANGES)}) and {POSITION!r}, as hr.read_postgres_changes, hr.debezium_changes and "
            "hr.read_delta(..., changes=True) give them.",
        )
