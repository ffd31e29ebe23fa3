"""Which PostgreSQL type stands for which type of ours: for the tables we write and for those we read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.connectors.base.decoding import inner_type
from headrace.errors import HeadraceError

# Writing: the type of a column we create, then other types of an existing column that take the values unchanged.
_WRITTEN: Mapping[type[pl.DataType], tuple[str, ...]] = {
    pl.Boolean: ("boolean",),
    pl.Int8: ("smallint", "integer", "bigint", "numeric", "real", "double precision"),
    pl.Int16: ("smallint", "integer", "bigint", "numeric", "real", "double precision"),
    pl.Int32: ("integer", "smallint", "bigint", "numeric", "double precision"),
    # A number too large for a narrower column becomes a dead letter, never a wrong number.
    pl.Int64: ("bigint", "smallint", "integer", "numeric"),
    pl.Float32: ("real", "double precision", "numeric"),
    pl.Float64: ("double precision", "numeric"),
    pl.String: ("text",),
    pl.Binary: ("bytea",),
    pl.Date: ("date", "timestamp without time zone"),
    pl.Duration: ("interval",),
}
# Strings, enumerations, network addresses, and user-defined types with a text form: uuid, json, xml, citext.
_TEXT_CATEGORIES = ("S", "E", "I", "U")
_TEXT_ELEMENTS = ("text", "character varying", "character", "uuid", "json", "jsonb")
# Reading: the Spark type of a column.
_READ = {
    "boolean": "BOOLEAN",
    "smallint": "SMALLINT",
    "integer": "INT",
    "bigint": "BIGINT",
    "oid": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "bytea": "BINARY",
    "date": "DATE",
    "timestamp without time zone": "TIMESTAMP_NTZ",
    "timestamp with time zone": "TIMESTAMP",
}
_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19, "oid": 10}
# The types whose values a declared column can hold; decimals, texts and lists see below.
_HELD: Mapping[type[pl.DataType], tuple[str, ...]] = {
    pl.Boolean: ("boolean",),
    pl.Int16: ("smallint",),
    pl.Int32: ("smallint", "integer"),
    pl.Int64: ("smallint", "integer", "oid", "bigint"),
    pl.Float32: ("real",),
    pl.Float64: ("real", "double precision", "numeric", "smallint", "integer", "oid"),
    pl.Binary: ("bytea",),
    pl.Date: ("date",),
    pl.Datetime: ("timestamp without time zone", "timestamp with time zone"),
}
_MAX_PRECISION = 38


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of an existing table that a sink writes to."""

    type: str
    """Without length or precision; a domain is replaced by its base type."""
    category: str
    """PostgreSQL's one-letter category of the type."""
    shown: str
    required: bool
    """NOT NULL without a default."""


def sql_type(kind: pl.DataType, column: str) -> str:
    """The type of a column that a sink creates.

    >>> sql_type(pl.List(pl.Decimal(10, 2)), "prices"), sql_type(pl.Datetime("us", "UTC"), "at")
    ('numeric(10,2)[]', 'timestamp with time zone')
    """
    match kind:
        case pl.Decimal():
            return f"numeric({kind.precision},{kind.scale})"
        case pl.Datetime():
            return f"timestamp {'without' if kind.time_zone is None else 'with'} time zone"
        case pl.List():
            return f"{sql_type(_element(kind), column)}[]"
    if type(kind) in _WRITTEN:
        return _WRITTEN[type(kind)][0]
    raise HeadraceError(
        "COLUMN_TYPE", f"column {column!r} is {kind}, for which PostgreSQL has no type. Convert it before the sink."
    )


def takes(column: TargetColumn, kind: pl.DataType) -> bool:
    """Whether an existing column takes our values without changing them.

    >>> uuid, text = TargetColumn("uuid", "U", "uuid", False), TargetColumn("text", "S", "text", False)
    >>> takes(uuid, pl.String()), takes(text, pl.Int64())
    (True, False)
    """
    if isinstance(kind, pl.List):
        inner = column.type.removesuffix("[]")
        element = TargetColumn(inner, "S" if inner in _TEXT_ELEMENTS else "?", column.shown, False)
        return column.type.endswith("[]") and takes(element, _element(kind))
    if isinstance(kind, pl.String) and column.category in _TEXT_CATEGORIES:
        return column.type != "bytea"
    return column.type == sql_type(kind, "").partition("(")[0] or column.type in _WRITTEN.get(type(kind), ())


def _element(kind: pl.List) -> pl.DataType:
    # PostgreSQL's array types do not count dimensions: a list of lists is the same array type.
    inner = inner_type(kind)
    return _element(inner) if isinstance(inner, pl.List) else inner


def ddl_type(shown: str) -> str:
    """The Spark type for a PostgreSQL type; STRING where Spark has no equivalent.

    >>> [ddl_type(shown) for shown in ("integer", "numeric(10,2)", "numeric", "text[]", "timestamp(3) with time zone")]
    ['INT', 'DECIMAL(10,2)', 'STRING', 'ARRAY<STRING>', 'TIMESTAMP']
    """
    name, size, is_array = _parts(shown)
    if is_array:
        # The one type whose array elements are not separated by commas.
        return "STRING" if name == "box" else f"ARRAY<{ddl_type(shown.removesuffix('[]'))}>"
    if name == "numeric" and size:
        precision, scale = size
        return f"DECIMAL({precision},{scale})" if 0 <= scale <= precision <= _MAX_PRECISION else "STRING"
    return _READ.get(name, "STRING")


def can_hold(kind: pl.DataType, shown: str) -> bool:
    """Whether a declared column can hold the values of a PostgreSQL type.

    >>> can_hold(pl.Int64(), "integer"), can_hold(pl.Int32(), "bigint"), can_hold(pl.String(), "jsonb")
    (True, False, True)
    """
    name, size, is_array = _parts(shown)
    if isinstance(kind, pl.String):
        return True
    if isinstance(kind, pl.List):
        return is_array and name != "box" and can_hold(inner_type(kind), shown.removesuffix("[]"))
    if is_array or not isinstance(kind, pl.Decimal):
        return not is_array and name in _HELD.get(type(kind), ())
    whole = kind.precision - kind.scale
    if name == "numeric" and size:
        precision, scale = size
        return kind.scale >= scale and whole >= precision - scale
    # A value of an unbounded numeric may not fit; its row is then a dead letter.
    return name == "numeric" or (name in _DIGITS and whole >= _DIGITS[name])


def _parts(shown: str) -> tuple[str, list[int], bool]:
    """A type's name, its sizes, and whether it is an array."""
    sizes = re.search(r"\((-?\d+(?:,-?\d+)*)\)", shown)
    name = re.sub(r"\([^)]*\)", "", shown).removesuffix("[]")
    return name, [int(number) for number in sizes[1].split(",")] if sizes is not None else [], shown.endswith("[]")
