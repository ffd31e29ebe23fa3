"""The tables that are read, as PostgreSQL's catalogue describes them: their columns, types and identity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.connectors.base.decoding import inner_type, type_name
from headrace.connectors.postgres.changes.pgoutput import Relation
from headrace.connectors.postgres.connection import PgConnection
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
# A domain is replaced by its base type; generated columns are not replicated.
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
# Of each type the Spark type of its column, and our types that hold all of its values. Decimals, texts and lists see
# below: a value of an unbounded numeric may not fit, and its row is then a dead letter.
_TYPES: Mapping[str, tuple[str, tuple[type[pl.DataType], ...]]] = {
    "boolean": ("BOOLEAN", (pl.Boolean,)),
    "smallint": ("SMALLINT", (pl.Int16, pl.Int32, pl.Int64, pl.Float64)),
    "integer": ("INT", (pl.Int32, pl.Int64, pl.Float64)),
    "bigint": ("BIGINT", (pl.Int64,)),
    "oid": ("BIGINT", (pl.Int64, pl.Float64)),
    "numeric": ("STRING", (pl.Float64,)),
    "real": ("FLOAT", (pl.Float32, pl.Float64)),
    "double precision": ("DOUBLE", (pl.Float64,)),
    "bytea": ("BINARY", (pl.Binary,)),
    "date": ("DATE", (pl.Date,)),
    "timestamp without time zone": ("TIMESTAMP_NTZ", (pl.Datetime,)),
    "timestamp with time zone": ("TIMESTAMP", (pl.Datetime,)),
}
_OTHER_TYPE = ("STRING", ())
_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19, "oid": 10}
_MAX_PRECISION = 38
_TABLE_KINDS = ("r", "p")
_FULL, _NOTHING = "f", "n"
SCHEMA_CHANGED = "SCHEMA_CHANGED"
START_OVER = "Start over with a new checkpoint and slot to read the table as it is now."


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column: OID and modifier of its type, as changes carry them, and the type's name."""

    name: str
    type: int
    modifier: int
    shown: str

    def is_other(self, then: SourceColumn, kind: pl.DataType) -> bool:
        """Whether the type has changed in a way that a declared column may no longer hold its values."""
        if self.type != then.type:
            return not isinstance(kind, pl.String)
        return self.modifier != then.modifier and isinstance(kind, pl.Decimal)


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table as it was when its change log began."""

    name: str
    """``schema.table``."""
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]
    """The primary key or the columns of the replica identity index; none with REPLICA IDENTITY FULL and no key."""
    whole: bool
    """Whether the whole old row is logged (REPLICA IDENTITY FULL)."""
    oid: int
    """Stays the same when the table is renamed."""

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{column.name.replace('`', '``')}` {ddl_type(column.shown)}" for column in self.columns)

    def check_declared(self, declared: Mapping[str, pl.DataType]) -> None:
        """Fail unless every declared column exists and can hold the table's values."""
        known = {column.name: column for column in self.columns}
        for name, kind in declared.items():
            if name not in known:
                raise HeadraceError(
                    "COLUMN_MISSING",
                    f"table {self.name} has no replicated column {name!r}. Existing columns: {', '.join(known)}.",
                )
            shown = known[name].shown
            if not can_hold(kind, shown):
                fitting = ddl_type(shown)
                text = "" if fitting == "STRING" else ", or as STRING for PostgreSQL's text form"
                raise HeadraceError(
                    "COLUMN_TYPE",
                    f"table {self.name}: {type_name(kind)} cannot hold {name!r}, {shown}. Declare it as "
                    f"{fitting}{text}.",
                )

    def check_same(self, relation: Relation) -> None:
        """Fail when changes come from another table, under another name, or with another replica identity."""
        if relation.table != self.name:
            raise renamed_or_dropped(self.name, relation.table)
        if self.oid != relation.id:
            raise renamed_or_dropped(self.name, None)
        then, now = _identity(self.key, whole=self.whole), _identity(relation.key, whole=relation.whole)
        if then != now:
            raise TableAltered(
                SCHEMA_CHANGED,
                f"table {self.name}: rows are now identified by {now} instead of {then} (primary key or REPLICA "
                f"IDENTITY), so new changes would not match earlier rows. {START_OVER}",
            )


class TableAltered(HeadraceError):
    """A table can no longer be followed; changes logged before are still read."""


def renamed_or_dropped(table: str, now: str | None) -> TableAltered:
    """The error for a table with another name, or without one: it is gone, even if another table has its name."""
    what = "dropped; a different table now has its name" if now is None else f"renamed to {now}"
    return TableAltered(SCHEMA_CHANGED, f"table {table} was {what}. {START_OVER}")


def _identity(key: tuple[str, ...], *, whole: bool) -> str:
    return "the whole row" if whole else f"({', '.join(sorted(key))})" if key else "nothing"


def split_name(name: str) -> tuple[str, str]:
    """Schema and table of a name; the default schema is ``public``.

    >>> split_name("orders"), split_name("shop.orders")
    (('public', 'orders'), ('shop', 'orders'))
    """
    schema, _, table = name.rpartition(".")
    return schema or "public", table


def full_name(name: str) -> str:
    """A table's name with its schema."""
    return ".".join(split_name(name))


def find_table(connection: PgConnection, name: str) -> SourceTable:
    """The table in the catalogue; an error when its changes cannot be followed."""
    found = connection.execute(_TABLE, split_name(name)).fetchone()
    if found is None or found[1] not in _TABLE_KINDS:
        what = "does not exist" if found is None else "is not a table (views have no changes of their own)"
        raise HeadraceError("TABLE_MISSING", f"table {name!r} {what}. Correct the name; letter case and schema count.")
    oid, _, identity, readable, numbers, inherited = found
    if not readable:
        raise HeadraceError(
            "SOURCE_REFUSED", f"table {name!r} may not be read by this user. Run: GRANT SELECT ON {name} TO <user>."
        )
    if inherited:
        raise HeadraceError(
            "TABLE_INHERITED",
            f"tables that inherit from {name!r} send changes under their own names. Read each by its own name.",
        )
    rows = connection.execute(_COLUMNS, (oid,)).fetchall()
    columns = tuple(SourceColumn(column, type, modifier, shown) for column, _, type, modifier, shown in rows)
    key = tuple(column for column, number, *_ in rows if number in numbers)
    if (not key and identity != _FULL) or identity == _NOTHING:
        raise HeadraceError(
            "KEY_MISSING",
            f"table {name!r} has no primary key (a deferrable one does not count), so updates and deletes "
            f"cannot be matched to rows. Add a primary key, or run: ALTER TABLE {name} REPLICA IDENTITY FULL.",
        )
    return SourceTable(full_name(name), columns, key, identity == _FULL, oid)


def ddl_type(shown: str) -> str:
    """The Spark type for a PostgreSQL type; STRING where Spark has no equivalent."""
    name, size, is_array = _parts(shown)
    if is_array:
        # The one type whose array elements are not separated by commas.
        return "STRING" if name == "box" else f"ARRAY<{ddl_type(shown.removesuffix('[]'))}>"
    if name == "numeric" and size:
        precision, scale = size
        return f"DECIMAL({precision},{scale})" if 0 <= scale <= precision <= _MAX_PRECISION else "STRING"
    return _TYPES.get(name, _OTHER_TYPE)[0]


def can_hold(kind: pl.DataType, shown: str) -> bool:
    """Whether a declared column can hold the values of a PostgreSQL type."""
    name, size, is_array = _parts(shown)
    if isinstance(kind, pl.String):
        return True
    if is_array or isinstance(kind, pl.List):
        items = inner_type(kind) if is_array and isinstance(kind, pl.List) else None
        return items is not None and name != "box" and can_hold(items, shown.removesuffix("[]"))
    if not isinstance(kind, pl.Decimal):
        return type(kind) in _TYPES.get(name, _OTHER_TYPE)[1]
    whole = kind.precision - kind.scale
    if name == "numeric" and size:
        precision, scale = size
        return kind.scale >= scale and whole >= precision - scale
    return name == "numeric" or (name in _DIGITS and whole >= _DIGITS[name])


def _parts(shown: str) -> tuple[str, list[int], bool]:
    """A type's name, its sizes, and whether it is an array."""
    sizes = re.search(r"\((-?\d+(?:,-?\d+)*)\)", shown)
    name = re.sub(r"\([^)]*\)", "", shown).removesuffix("[]")
    return name, [int(number) for number in sizes[1].split(",")] if sizes is not None else [], shown.endswith("[]")
