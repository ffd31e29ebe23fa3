"""The exact judge of one JSON line: good, or the reason and detail of why not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import isinf
from typing import Any

import polars as pl

from headrace.connectors.base.dead_lines import Verdict
from headrace.connectors.base.decoding import (
    FOUND_CHARACTERS,
    NOT_AN_OBJECT,
    NOT_JSON,
    NOT_UTF8,
    OUT_OF_RANGE,
    WRONG_TYPE,
    Columns,
    field_types,
    inner_type,
    mismatch,
    plain_types,
)

Check = Callable[[Any], Verdict | None]

# Escaped backslashes and whole surrogate pairs are stepped over, so that what is left in the group is half a pair.
_HALF_PAIR = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_EXACT_DIGITS = 15
_BIGGEST = 2**63  # smaller integers are read as 64 bits and narrowed in bulk


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges lines for the declared columns; times, decimals and small integers are left to the bulk conversion.

    >>> Judge.of(Columns({"amount": pl.Float64()})).verdict(b'{"amount": "12,50"}')
    ('WRONG_TYPE', 'column amount is DOUBLE, found "12,50"')
    """

    checks: tuple[tuple[str, Check], ...]
    scan: Callable[[str], tuple[Any, int]]
    first_wins: json.JSONDecoder

    @classmethod
    def of(cls, columns: Columns) -> Judge:
        decimals = any(isinstance(leaf, pl.Decimal) for kind in columns.types.values() for leaf in plain_types(kind))
        number = Decimal if decimals else float
        decoder = json.JSONDecoder(parse_float=number, parse_constant=_refuse)
        first_wins = json.JSONDecoder(parse_float=number, parse_constant=_refuse, object_pairs_hook=_first_wins)
        checks = ((name, _check(name, kind)) for name, kind in columns.types.items())
        chosen = tuple((name, check) for name, check in checks if check is not None)
        return cls(chosen, decoder.raw_decode, first_wins)

    def verdict(self, line: bytes) -> Verdict | None:
        """None for a line that the bulk decoder will take."""
        if b"\\u" in line and (half := next((found[1] for found in _HALF_PAIR.finditer(line) if found[1]), None)):
            return NOT_UTF8, f"escape {half.decode()} is half of a surrogate pair"
        try:
            text = line.decode()
            value, end = self.scan(text)
            if end == len(text) and type(value) is dict and self._first_problem(value) is None:
                return None
            value = self.first_wins.decode(text)
        except UnicodeDecodeError as error:
            return NOT_UTF8, f"byte 0x{line[error.start]:02x} at offset {error.start} is not UTF-8"
        except json.JSONDecodeError:
            return self._refusal(text)
        except (ValueError, RecursionError):  # a number or a nesting beyond Python's limits: the bulk decoder decides
            return None
        if not isinstance(value, dict):
            return NOT_AN_OBJECT, f"found {json.dumps(value, default=str)[:FOUND_CHARACTERS]}"
        return self._first_problem(value)

    def _refusal(self, text: str) -> Verdict | None:
        try:
            self.first_wins.decode(text)
        except json.JSONDecodeError as error:
            return NOT_JSON, f"{error.msg} at character {error.pos + 1}"
        except (ValueError, RecursionError):
            return None
        return None

    def _first_problem(self, value: Mapping[str, Any]) -> Verdict | None:
        for name, check in self.checks:
            held = value.get(name)
            if held is not None and (problem := check(held)) is not None:
                return problem
        return None


def _check(path: str, declared: pl.DataType) -> Check | None:
    """The check of one column; None where the bulk decoder takes any value."""

    def wrong(value: Any, reason: str = WRONG_TYPE) -> Verdict:
        return reason, mismatch(path, declared, json.dumps(value, default=str, ensure_ascii=False))

    match declared:
        case pl.Boolean():
            return lambda value: None if type(value) is bool else wrong(value)
        case pl.Int8() | pl.Int16() | pl.Int32() | pl.Int64():

            def whole(value: Any) -> Verdict | None:
                if type(value) is not int:
                    return wrong(value)
                return None if -_BIGGEST <= value < _BIGGEST else wrong(value, OUT_OF_RANGE)

            return whole
        case pl.Float32() | pl.Float64():

            def number(value: Any) -> Verdict | None:
                if type(value) is float:
                    return wrong(value, OUT_OF_RANGE) if isinf(value) else None
                return None if type(value) is int or type(value) is Decimal else wrong(value)

            return number
        case pl.Decimal():
            return lambda value: (
                wrong(value, OUT_OF_RANGE)
                if type(value) is Decimal and len(value.as_tuple().digits) > _EXACT_DIGITS
                else None
            )
        case pl.List():
            inner = _check(f"{path}[]", inner_type(declared))
            return _list_check(inner, wrong)
        case pl.Struct():
            fields = {name: _check(f"{path}.{name}", kind) for name, kind in field_types(declared).items()}
            return _struct_check({name: check for name, check in fields.items() if check is not None}, wrong)
        case _:
            return None


def _list_check(inner: Check | None, wrong: Check) -> Check:
    def check(value: Any) -> Verdict | None:
        if type(value) is not list:
            return wrong(value)
        if inner is None:
            return None
        return next((problem for item in value if item is not None and (problem := inner(item)) is not None), None)

    return check


def _struct_check(fields: Mapping[str, Check], wrong: Check) -> Check:
    def check(value: Any) -> Verdict | None:
        if type(value) is not dict:
            return wrong(value)
        held = ((inner, value.get(name)) for name, inner in fields.items())
        return next((p for inner, item in held if item is not None and (p := inner(item)) is not None), None)

    return check


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The bulk decoder keeps the first of two equal keys, so the judge does too."""
    return dict(reversed(pairs))


def _refuse(constant: str) -> Any:
    raise json.JSONDecodeError(f"{constant} is not a JSON number", constant, 0)
