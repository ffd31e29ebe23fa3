"""Whether a table of which changes come is still the one that was followed from the beginning."""

from __future__ import annotations

from headrace.connectors.postgres.changes.catalogue import Table
from headrace.connectors.postgres.changes.pgoutput import Relation
from headrace.errors import HeadraceError

SCHEMA_CHANGED = "SCHEMA_CHANGED"
ANEW = "Give the pipeline a new checkpoint and slot to begin anew with the table as it is now."


class Altered(HeadraceError):
    """A table can no longer be followed; what was logged before is still read."""


def dropped(table: str) -> Altered:
    """The error for a table that is gone, though another one may have its name."""
    return Altered(SCHEMA_CHANGED, f"table {table} was dropped; one that has its name now is another table. {ANEW}")


def renamed(table: str, now: str) -> Altered:
    """The error for a table that goes by another name."""
    return Altered(SCHEMA_CHANGED, f"table {table} was renamed to {now}, and is not followed there. {ANEW}")


def check_same(table: Table, relation: Relation) -> None:
    """An error for another table, another name, and another answer to which row a change means."""
    if relation.table != table.name:
        raise renamed(table.name, relation.table)
    if table.oid not in (0, relation.id):
        raise dropped(table.name)
    then, now = _told_apart_by(table.key, whole=table.whole), _told_apart_by(relation.key, whole=relation.whole)
    if then != now:
        raise Altered(
            SCHEMA_CHANGED,
            f"table {table.name}: rows are now told apart by {now}, no longer by {then}, so changes from here on would "
            f"not find the rows of those before (its primary key or REPLICA IDENTITY was changed). {ANEW}",
        )


def _told_apart_by(key: tuple[str, ...], *, whole: bool) -> str:
    return "the whole row" if whole else f"({', '.join(sorted(key))})" if key else "nothing"
