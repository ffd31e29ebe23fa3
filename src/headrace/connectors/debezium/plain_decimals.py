"""Decimals that a connector sends as JSON numbers, told apart from base 64 while they still look different."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import polars as pl

from headrace.connectors.base.conversion import from_text
from headrace.connectors.base.decoding import field_types, inner_type

_NUMBER = r"-?[0-9][0-9.eE+-]*"


def with_plain_decimals(payload: pl.Series, declared: Mapping[str, pl.DataType]) -> pl.Series:
    """Objects with the numbers of decimal columns as text that begins with a space, which base 64 never does.

    >>> given = pl.Series(['{"price": 1234.0, "n": 7}', '{"price": "BNI=", "n": 8}'])
    >>> with_plain_decimals(given, {"price": pl.Decimal(10, 2), "n": pl.Int64()}).to_list()
    ['{"price": " 1234.0", "n": 7}', '{"price": "BNI=", "n": 8}']
    """
    kinds = list(_fields(declared))
    # A name that stands for something else elsewhere in the row cannot be told apart here.
    others = {name for name, kind in kinds if not isinstance(kind, pl.Decimal)}
    names = sorted({name for name, kind in kinds if isinstance(kind, pl.Decimal)} - others)
    if not names:
        return payload
    quoted = "|".join(pl.escape_regex(json.dumps(name, ensure_ascii=False)) for name in names)
    return payload.str.replace_all(rf"((?:{quoted})\s*:\s*)({_NUMBER})", '${1}" ${2}"')


def plain_decimals(text: pl.Series, declared: pl.Decimal) -> pl.Series:
    """What plain numbers say, in the declared type; null where they have more digits than it.

    >>> plain_decimals(pl.Series([" 1234.5", "1.2345678E7", "0.001"]), pl.Decimal(10, 2)).to_list()
    [Decimal('1234.50'), Decimal('12345678.00'), None]
    """
    text = text.str.strip_chars_start(" ")
    exact = from_text(text, declared)
    powers = text.str.contains("[eE]").fill_null(False)
    if not powers.any():
        return exact
    # Written so, numbers are floats: one that comes back from the decimal as it was had no further digits.
    number = text.set(~powers, None).cast(pl.Float64, strict=False)
    close = number.cast(declared, strict=False)
    return exact.zip_with(exact.is_not_null(), close.set((close.cast(pl.Float64) != number).fill_null(True), None))


def _fields(declared: Mapping[str, pl.DataType]) -> Iterator[tuple[str, pl.DataType]]:
    for name, kind in declared.items():
        yield name, kind
        inner = inner_type(kind) if isinstance(kind, pl.List) else kind
        if isinstance(inner, pl.Struct):
            yield from _fields(field_types(inner))
