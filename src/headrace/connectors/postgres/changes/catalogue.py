"""What PostgreSQL's catalogue says of a table: its columns, its key, and what it logs of old rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import psycopg

from headrace.errors import HeadraceError

_TABLE = """
select c.oid, c.relkind::text, c.relreplident::text, has_table_privilege(c.oid, 'select'),
    coalesce((i.indkey::int2[])[0:i.indnkeyatts - 1], '{}') as key,
    c.relkind = 'r' and exists (select from pg_inherits h where h.inhparent = c.oid) as inherited
from pg_class c
left join pg_index i on i.indrelid = c.oid and i.indimmediate
    and case c.relreplident when 'i' then i.indisreplident else i.indisprimary end
where c.oid = to_regclass(format('%%I.%%I', %s::text, %s::text))
"""
# A domain is written as the type it is made of; a generated column is not replicated.
_COLUMNS = """
select a.attname, a.attnum, a.atttypid::int8, a.atttypmod, base.shown
from pg_attribute a
cross join lateral (
    with recursive made_of(type, modifier) as (
        select a.atttypid, a.atttypmod
        union all
        select t.typbasetype, t.typtypmod from made_of join pg_type t on t.oid = made_of.type where t.typtype = 'd'
    )
    select format_type(made_of.type, made_of.modifier) as shown
    from made_of join pg_type t on t.oid = made_of.type where t.typtype <> 'd'
) base
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
order by a.attnum
"""
TABLE_KINDS = ("r", "p")
FULL = "f"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the number and modifier of its type as changes carry them, and the type in words."""

    name: str
    type: int
    modifier: int
    shown: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it was when its changes began to be read."""

    name: str
    """``schema.table``."""
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The primary key, or the columns of the index that stands for it; none when old rows alone tell rows apart."""
    whole: bool
    """Whether the whole old row is logged (REPLICA IDENTITY FULL)."""
    oid: int = 0
    """The number that the server has given it, which no other name changes; 0 where an earlier version left it out."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(column.name for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        """The table for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """The table from a file."""
        columns = tuple(Column(**column) for column in given["columns"])
        return cls(given["name"], columns, tuple(given["key"]), given["whole"], given.get("oid", 0))


def split_name(name: str) -> tuple[str, str]:
    """Schema and table of a name; without a schema it is ``public``.

    >>> split_name("orders"), split_name("shop.orders")
    (('public', 'orders'), ('shop', 'orders'))
    """
    schema, _, table = name.rpartition(".")
    return schema or "public", table


def full_name(name: str) -> str:
    """A table's name with its schema.

    >>> full_name("orders")
    'public.orders'
    """
    return ".".join(split_name(name))


def find_table(connection: psycopg.Connection[Any], name: str) -> Table:
    """The table as the catalogue has it; an error when its changes could not be told from each other."""
    found = connection.execute(_TABLE, split_name(name)).fetchone()
    if found is None or found[1] not in TABLE_KINDS:
        what = "does not exist" if found is None else "is no table (a view or the like has no changes of its own)"
        raise HeadraceError(
            "TABLE_MISSING", f"table {name!r} {what}. Correct the name; letter case counts, and the schema too."
        )
    oid, _, identity, readable, numbers, inherited = found
    if not readable:
        raise HeadraceError(
            "SOURCE_REFUSED", f"table {name!r} may not be read by this user. Let it: GRANT SELECT ON {name} TO <user>."
        )
    if inherited:
        raise HeadraceError(
            "TABLE_INHERITED",
            f"other tables inherit from {name!r}. A query of it shows their rows, but their changes come under their "
            "own names. Read each of them by its own name, or make it a partitioned table.",
        )
    rows = connection.execute(_COLUMNS, (oid,)).fetchall()
    columns = tuple(Column(column, type, modifier, shown) for column, _, type, modifier, shown in rows)
    key = tuple(column for column, number, *_ in rows if number in numbers)
    if (not key and identity != FULL) or identity == "n":
        raise HeadraceError(
            "KEY_MISSING",
            f"table {name!r} has no primary key (a deferrable one does not count) and does not log old rows, so an "
            "update or delete could not say which row it means, and PostgreSQL would refuse it once the table is "
            "published. Add a primary key, or: "
            f"ALTER TABLE {name} REPLICA IDENTITY FULL.",
        )
    return Table(full_name(name), columns, key, identity == FULL, oid)
