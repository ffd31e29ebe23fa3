"""Which column of ours holds which column of PostgreSQL."""

from __future__ import annotations

import re

import polars as pl

from headrace.connectors.base.decoding import inner_type
from headrace.connectors.postgres.changes.catalogue import Column

_SAME = {
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
_WHOLE = {"smallint": 5, "integer": 10, "bigint": 19, "oid": 10}
"""Digits of the largest number."""
_BITS = {"smallint": 16, "integer": 32, "oid": 33, "bigint": 64}
_INTEGERS: dict[type[pl.DataType], int] = {pl.Int16: 16, pl.Int32: 32, pl.Int64: 64}
_LARGEST_PRECISION = 38


def ddl_type(shown: str) -> str:
    """The type of the column that a frame has for a column of PostgreSQL; text for all that Spark has no type for.

    >>> [ddl_type(shown) for shown in ("integer", "numeric(10,2)", "numeric", "text[]", "timestamp(3) with time zone")]
    ['INT', 'DECIMAL(10,2)', 'STRING', 'ARRAY<STRING>', 'TIMESTAMP']
    """
    name, modifier, is_array = taken_apart(shown)
    if is_array:
        # The one type whose arrays are not divided by commas.
        return "STRING" if name == "box" else f"ARRAY<{ddl_type(shown.removesuffix('[]'))}>"
    if name == "numeric" and modifier:
        precision, scale = [int(number) for number in modifier.split(",")]
        fits = 0 <= scale <= precision <= _LARGEST_PRECISION
        return f"DECIMAL({precision},{scale})" if fits else "STRING"
    return _SAME.get(name, "STRING")


def taken_apart(shown: str) -> tuple[str, str, bool]:
    """A type's name, its modifier, and whether it is an array.

    >>> taken_apart("character varying(20)[]")
    ('character varying', '20', True)
    """
    modifier = re.search(r"\(([^)]*)\)", shown)
    name = re.sub(r"\([^)]*\)", "", shown).removesuffix("[]")
    return name, "" if modifier is None else modifier[1], shown.endswith("[]")


def holds(kind: pl.DataType, shown: str) -> bool:
    """Whether a declared column can hold the values of a column of PostgreSQL.

    >>> holds(pl.Int64(), "integer"), holds(pl.Int32(), "bigint"), holds(pl.String(), "jsonb")
    (True, False, True)
    """
    name, modifier, is_array = taken_apart(shown)
    if isinstance(kind, pl.String):
        return True
    if isinstance(kind, pl.List):
        return is_array and name != "box" and holds(inner_type(kind), shown.removesuffix("[]"))
    if is_array:
        return False
    match kind:
        case pl.Boolean():
            return name == "boolean"
        case pl.Int16() | pl.Int32() | pl.Int64():
            return name in _BITS and _BITS[name] <= _INTEGERS[type(kind)]
        case pl.Float32():
            return name == "real"
        case pl.Float64():
            return name in ("real", "double precision", "numeric", "smallint", "integer", "oid")
        case pl.Decimal():
            if name != "numeric" or not modifier:
                # A number without a declared size may not fit; then its row is a dead letter.
                return name == "numeric" or (name in _WHOLE and kind.precision - kind.scale >= _WHOLE[name])
            precision, scale = [int(number) for number in modifier.split(",")]
            return kind.scale >= scale and kind.precision - kind.scale >= precision - scale
        case pl.Binary():
            return name == "bytea"
        case pl.Date():
            return name == "date"
        case pl.Datetime():
            return name.startswith("timestamp")
    return False


def is_other(now: Column, then: Column, kind: pl.DataType) -> bool:
    """Whether a column's type has changed so that a declared column may no longer hold its values."""
    if now.type != then.type:
        return not isinstance(kind, pl.String)
    return now.modifier != then.modifier and isinstance(kind, pl.Decimal)
