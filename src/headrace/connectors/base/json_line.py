"""One line of JSON at a time, in Python: what is wrong with it, and its numbers as they were written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from math import inf
from typing import Any

import polars as pl

from headrace.connectors.base.decoding import (
    FOUND_CHARACTERS,
    Columns,
    Verdict,
    field_types,
    inner_type,
    mismatch,
    not_utf8,
)

Check = Callable[[Any], Verdict | None]

# Steps over escaped backslashes and whole surrogate pairs, so that the group holds half a pair.
_HALF_PAIR = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Texts for the doubles that JSON does not have."""
_BIGGEST = 2**63  # smaller integers are read as 64 bits and narrowed in bulk
_LONGEST = 99
"""Decimals with more digits fit no column."""


def line_judge(columns: Columns) -> Callable[[bytes], Verdict | None]:
    """Judges single lines: None for a good one. Times, decimals and small integers are left to the conversion."""
    # Polars keeps the first of two equal keys, so the judge does too.
    decoder = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    check = _fields_check("", columns.types)

    def verdict(line: bytes) -> Verdict | None:
        if b"\\u" in line and (half := next((found[1] for found in _HALF_PAIR.finditer(line) if found[1]), None)):
            return "NOT_UTF8", f"escape {half.decode()} is half of a surrogate pair"
        if (broken := not_utf8(line)) is not None:
            return broken
        try:
            value = decoder.decode(line.decode())
        except json.JSONDecodeError as error:
            return "NOT_JSON", f"{error.msg} at character {error.pos + 1}"
        except (ValueError, RecursionError):  # a number or a nesting beyond Python's limits: Polars decides
            return None
        if not isinstance(value, dict):
            return "NOT_AN_OBJECT", f"found {json.dumps(value, default=str)[:FOUND_CHARACTERS]}"
        return check(value)

    return verdict


def _fields_check(prefix: str, types: Mapping[str, pl.DataType]) -> Check:
    found = ((name, _check(f"{prefix}{name}", kind)) for name, kind in types.items())
    checks = [(name, check) for name, check in found if check is not None]

    def first_problem(value: Mapping[str, Any]) -> Verdict | None:
        for name, check in checks:
            held = value.get(name)
            if held is not None and (problem := check(held)) is not None:
                return problem
        return None

    return first_problem


def _check(path: str, declared: pl.DataType) -> Check | None:
    """The check of one column; None where Polars takes any value."""

    def wrong(value: Any, reason: str = "WRONG_TYPE") -> Verdict:
        return reason, mismatch(path, declared, json.dumps(value, default=str, ensure_ascii=False))

    def typed(check: Check, *allowed: type) -> Check:
        return lambda value: check(value) if type(value) in allowed else wrong(value)

    def bounded(fits: Callable[[Any], bool], *allowed: type) -> Check:
        return typed(lambda value: None if fits(value) else wrong(value, "OUT_OF_RANGE"), *allowed)

    match declared:
        case pl.Boolean():
            return typed(lambda _: None, bool)
        case pl.Int8() | pl.Int16() | pl.Int32() | pl.Int64():
            return bounded(range(-_BIGGEST, _BIGGEST).__contains__, int)
        case pl.Float32() | pl.Float64():
            finite = bounded(lambda value: value not in (inf, -inf), float, int)
            return lambda value: None if value in NOT_FINITE else finite(value)
        case pl.List():
            inner = _fields_check(path, {"[]": inner_type(declared)})
            return typed(lambda value: next(filter(None, (inner({"[]": item}) for item in value)), None), list)
        case pl.Struct():
            return typed(_fields_check(f"{path}.", field_types(declared)), dict)
        case _:
            return None


def _refuse(constant: str) -> Any:
    raise json.JSONDecodeError(f"{constant} is not a JSON number", constant, 0)


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def with_exact_numbers(columns: Columns) -> Callable[[bytes], bytes]:
    r"""Makes JSON text of the numbers and objects in STRING columns, and of the numbers in DECIMAL columns.

    >>> exact = with_exact_numbers(Columns({"id": pl.String(), "n": pl.Float64()}))
    >>> exact(b'{"id": 1.10, "n": 1.10}'), exact(b'{"id": {"a": 1e2}}')
    (b'{"id": "1.10", "n": 1.10}', b'{"id": "{\\"a\\": 1e2}"}')
    """
    decoder = json.JSONDecoder(parse_int=_Number, parse_float=_Number, object_pairs_hook=tuple)
    row = _row_keeper(columns.types)

    def rewritten(line: bytes) -> bytes:
        try:
            return _written(row(decoder.decode(line.decode()))).encode()
        except (ValueError, RecursionError):  # what the judge could not read either: Polars decides
            return line

    return rewritten


def _row_keeper(types: Mapping[str, pl.DataType]) -> Callable[[Any], Any]:
    """Takes objects, which are tuples of pairs, and returns their wanted fields."""
    keepers = [(name, _keeper(kind)) for name, kind in types.items()]

    def kept(value: Any) -> Any:
        if type(value) is not tuple:
            return value
        given = dict(reversed(value))
        return tuple(
            (name, given[name] if keep is None else keep(given[name])) for name, keep in keepers if name in given
        )

    return kept


def _keeper(declared: pl.DataType) -> Callable[[Any], Any] | None:
    """Puts text in the place of values that would lose their form; None where none would."""
    match declared:
        case pl.String():
            return lambda value: value if value is None or type(value) is str else _written(value)
        case pl.Decimal():
            return lambda value: _plain(Decimal(value)) if type(value) is _Number else value
        case pl.List():
            keep = _keeper(inner_type(declared))
            return keep and (lambda value: list(map(keep, value)) if type(value) is list else value)
        case pl.Struct():
            return _row_keeper(field_types(declared))
        case _:
            return None


def _plain(number: Decimal) -> str:
    """A decimal without an exponent, unless it has no place in any column."""
    return f"{number:f}" if abs(number.adjusted()) < _LONGEST else str(number)


def _written(value: Any) -> str:
    if type(value) is str:
        return encode_basestring(value)
    if type(value) is _Number:
        return str(value)
    if type(value) is tuple:
        return "{" + ", ".join([f"{encode_basestring(name)}: {_written(each)}" for name, each in value]) + "}"
    if type(value) is list:
        return "[" + ", ".join(map(_written, value)) + "]"
    return json.dumps(value)
