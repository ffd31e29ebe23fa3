"""Operands with their types: Spark's types of literals, and the common type that it converts operands to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite

import polars as pl

Schema = Mapping[str, pl.DataType]

LARGEST_PRECISION = 38
INTEGER_DIGITS: Mapping[pl.DataType, int] = {pl.Int8(): 3, pl.Int16(): 5, pl.Int32(): 10, pl.Int64(): 20}
_INTEGERS = list(INTEGER_DIGITS)
INTEGER_BITS: Mapping[pl.DataType, int] = dict(zip(_INTEGERS, (8, 16, 32, 64), strict=True))
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?")
_INSTANT = re.compile(_LOCAL_TIME.pattern + r"(Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class Operand:
    """A Polars expression and the type it has, known before any row is seen."""

    value: pl.Expr
    dtype: pl.DataType

    def to(self, dtype: pl.DataType) -> Operand:
        """The operand converted to a type that `common_type` gave for it."""
        if self.dtype == dtype:
            return self
        if isinstance(self.dtype, pl.Datetime) and isinstance(dtype, pl.Datetime):
            return Operand(self.value.dt.convert_time_zone("UTC"), dtype)
        return Operand(self.value.cast(dtype), dtype)


def common_type(left: pl.DataType, right: pl.DataType) -> pl.DataType | None:
    """The type Spark brings two operands to, or None where it has none or would have to guess.

    >>> common_type(pl.Int32(), pl.Float32()), common_type(pl.String(), pl.Int32())
    (Float64, None)
    """
    if left == right or right == pl.Null():
        return left
    if left == pl.Null():
        return right
    if left.is_integer() and right.is_integer():
        return max(left, right, key=_INTEGERS.index)
    if left.is_numeric() and right.is_numeric():
        return pl.Float64() if left.is_float() or right.is_float() else _wider_decimal(left, right)
    if isinstance(left, pl.Datetime) and isinstance(right, pl.Datetime) and left.time_zone and right.time_zone:
        return pl.Datetime("us", "UTC")
    return None


def _wider_decimal(left: pl.DataType, right: pl.DataType) -> pl.DataType | None:
    (left_precision, left_scale), (right_precision, right_scale) = digits_of(left), digits_of(right)
    scale = max(left_scale, right_scale)
    precision = scale + max(left_precision - left_scale, right_precision - right_scale)
    return pl.Decimal(precision, scale) if precision <= LARGEST_PRECISION else None


def digits_of(dtype: pl.DataType) -> tuple[int, int]:
    """The precision and scale of a decimal or a whole number."""
    if isinstance(dtype, pl.Decimal):
        return dtype.precision, dtype.scale
    return INTEGER_DIGITS[dtype], 0


def number(text: str) -> tuple[int | float | Decimal, pl.DataType] | None:
    """A number literal, typed by how it is written: 1 INT, 1.5 DECIMAL(2,1), 1e3 DOUBLE; None if out of range.

    >>> number("1"), number("1.5"), number("1e3")
    ((1, Int32), (Decimal('1.5'), Decimal(precision=2, scale=1)), (1000.0, Float64))
    """
    if "e" in text.lower():
        value = float(text)
        return (value, pl.Float64()) if isfinite(value) else None
    if text.lstrip("-").isdigit():
        for integer in (pl.Int32(), pl.Int64()):
            if fits(int(text), integer):
                return int(text), integer
    exact = Decimal(text)
    _, digits, exponent = exact.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale)
    return (exact, pl.Decimal(precision, scale)) if precision <= LARGEST_PRECISION else None


def fits(value: int, dtype: pl.DataType) -> bool:
    """Whether an integer lies in the range of an integer type.

    >>> fits(127, pl.Int8()), fits(128, pl.Int8())
    (True, False)
    """
    beyond = 1 << (INTEGER_BITS[dtype] - 1)
    return -beyond <= value < beyond


def moment(text: str, dtype: pl.DataType) -> date | datetime | None:
    """A DATE, TIMESTAMP or TIMESTAMP_NTZ literal; None unless it reads the same in every session's zone.

    >>> moment("2026-01-01 00:00:00", pl.Datetime("us", "UTC")) is None
    True
    """
    with suppress(ValueError):
        if dtype == pl.Date() and _DATE.fullmatch(text):
            return date.fromisoformat(text)
        if dtype == pl.Datetime("us") and _LOCAL_TIME.fullmatch(text):
            return datetime.fromisoformat(text)
        if dtype == pl.Datetime("us", "UTC") and _INSTANT.fullmatch(text):
            return datetime.fromisoformat(text).astimezone(UTC)
    return None
