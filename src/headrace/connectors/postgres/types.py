"""Which PostgreSQL column takes which column of ours."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.errors import HeadraceError

_SIMPLE: tuple[tuple[tuple[type[pl.DataType], ...], str, tuple[str, ...]], ...] = (
    # ours, the type of a column we create, the types of an existing column that take it too
    ((pl.Boolean,), "boolean", ()),
    ((pl.Int8, pl.Int16), "smallint", ("integer", "bigint", "numeric", "real", "double precision")),
    ((pl.Int32,), "integer", ("smallint", "bigint", "numeric", "double precision")),
    # A number too large for a narrower column is a dead letter, not a wrong number.
    ((pl.Int64,), "bigint", ("smallint", "integer", "numeric")),
    ((pl.Float32,), "real", ("double precision", "numeric")),
    ((pl.Float64,), "double precision", ("numeric",)),
    ((pl.String,), "text", ()),
    ((pl.Binary,), "bytea", ()),
    ((pl.Date,), "date", ("timestamp without time zone",)),
    ((pl.Duration,), "interval", ()),
)
# Strings, enumerations, network addresses and what is made from text: uuid, json, xml, citext.
_FROM_TEXT = ("S", "E", "I", "U")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an existing table."""

    type: str
    """Without length or precision, domains replaced by what they are made of."""
    category: str
    """PostgreSQL's one-letter category of the type."""
    shown: str
    required: bool
    """Not null, and nothing is put there when nothing is given."""


def sql_type(kind: pl.DataType, column: str) -> str:
    """The type of a column that is created for ours.

    >>> sql_type(pl.List(pl.Decimal(10, 2)), "prices"), sql_type(pl.Datetime("us", "UTC"), "at")
    ('numeric(10,2)[]', 'timestamp with time zone')
    """
    match kind:
        case pl.Decimal():
            return f"numeric({kind.precision},{kind.scale})"
        case pl.Datetime():
            return f"timestamp {'without' if kind.time_zone is None else 'with'} time zone"
        case pl.List():
            return f"{sql_type(_inner(kind), column)}[]"
    for ours, name, _ in _SIMPLE:
        if isinstance(kind, ours):
            return name
    raise HeadraceError(
        "COLUMN_TYPE", f"column {column!r} is {kind}, for which PostgreSQL has no type. Convert it before the sink."
    )


def takes(column: Column, kind: pl.DataType) -> bool:
    """Whether an existing column takes values of ours without changing them.

    >>> takes(Column("uuid", "U", "uuid", False), pl.String()), takes(Column("text", "S", "text", False), pl.Int64())
    (True, False)
    """
    if isinstance(kind, pl.List):
        element = Column(column.type.removesuffix("[]"), _category(column.type), column.shown, False)
        return column.type.endswith("[]") and takes(element, _inner(kind))
    if isinstance(kind, pl.String) and column.category in _FROM_TEXT:
        return column.type != "bytea"
    also = next((others for ours, _, others in _SIMPLE if isinstance(kind, ours)), ())
    return column.type == sql_type(kind, "").partition("(")[0] or column.type in also


def _category(array: str) -> str:
    return (
        "S" if array.removesuffix("[]") in ("text", "character varying", "character", "uuid", "json", "jsonb") else "?"
    )


def _inner(kind: pl.List) -> pl.DataType:
    assert isinstance(kind.inner, pl.DataType)  # for the type checker: a list in a frame's schema knows its element
    # A list in a list is one more dimension of the same array type, which PostgreSQL writes with one pair of brackets.
    return _inner(kind.inner) if isinstance(kind.inner, pl.List) else kind.inner
