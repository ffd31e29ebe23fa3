"""Arithmetic and casts: for whole columns, and for single values while a pattern is matched.

What Spark would stop the query for is null: overflow, division by zero, a text that is not a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from math import isfinite
from typing import Any

import numpy as np
import polars as pl

from headrace.expressions.nodes import ArithmeticOperator
from headrace.expressions.operands import LARGEST_PRECISION, Operand, common_type, digits_of, fits

WHOLE = pl.Decimal(LARGEST_PRECISION, 0)
_EXACT = Context(prec=2 * LARGEST_PRECISION)
_BLANK = "".join(map(chr, range(33)))
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def result_type(sign: ArithmeticOperator, left: pl.DataType, right: pl.DataType) -> pl.DataType | None:
    """The type that Spark gives the result of arithmetic; None where decimals could lose digits.

    >>> result_type("*", pl.Int32(), pl.Int64()), result_type("/", pl.Int32(), pl.Int64())
    (Int64, Float64)
    >>> result_type("*", pl.Decimal(10, 2), pl.Int32())
    Decimal(precision=21, scale=2)
    """
    if sign == "/":
        return None if isinstance(left, pl.Decimal) or isinstance(right, pl.Decimal) else pl.Float64()
    if left.is_integer() and right.is_integer():
        return pl.Int64() if sign == "div" else common_type(left, right)
    if sign in ("%", "div"):
        return None
    if left.is_float() or right.is_float():
        return common_type(left, right) or pl.Float64()
    (one, scale), (other, places) = digits_of(left), digits_of(right)
    if sign == "*":
        return _decimal(one + other + 1, scale + places)
    most = max(scale, places)
    return _decimal(max(one - scale, other - places) + most + 1, most)


def exact_type(sign: ArithmeticOperator, left: pl.DataType, right: pl.DataType) -> pl.DataType | None:
    """The type of sums, differences and products of whole numbers that never overflow."""
    # A BIGINT has 19 digits, although Spark counts 20.
    one, other = (digits_of(each)[0] - (each == pl.Int64()) for each in (left, right))
    return _decimal(one + other if sign == "*" else max(one, other) + 1, 0)


def _decimal(precision: int, scale: int) -> pl.DataType | None:
    return pl.Decimal(precision, scale) if precision <= LARGEST_PRECISION else None


def arithmetic_of_columns(sign: ArithmeticOperator, left: Operand, right: Operand, dtype: pl.DataType) -> pl.Expr:
    """Numbers that are not both floats added, subtracted, multiplied or divided, or floats divided."""
    if sign == "/":
        divisor = right.to(pl.Float64()).value
        if not divisor.meta.root_names():
            # Polars multiplies by the reciprocal of a single value, which rounds twice.
            divisor += pl.int_range(pl.len()) * 0.0
        return pl.when(divisor != 0).then(left.to(pl.Float64()).value / divisor)
    scale = 0 if sign == "*" or not isinstance(dtype, pl.Decimal) else dtype.scale
    one, other = (unscaled(each, None if sign == "*" else scale) for each in (left, right))
    match sign:
        case "+" | "-" | "*":
            total = one + other if sign == "+" else one - other if sign == "-" else one * other
        case "%":
            total = pl.when(other != 0).then(one.abs() % other.abs() * one.sign())
        case "div":
            total = pl.when(other != 0).then(one.abs() // other.abs() * one.sign() * other.sign())
    return as_number(total, dtype)


def unscaled(operand: Operand, scale: int | None = None) -> pl.Expr:
    """A whole number or decimal as a whole number, in units of the last of ``scale`` digits after the point."""
    if not isinstance(operand.dtype, pl.Decimal):
        return operand.value.cast(pl.Int128) * _unit(scale or 0)
    more = 0 if scale is None else scale - operand.dtype.scale
    return operand.value.to_physical() * _unit(more) if more else operand.value.to_physical()


def _unit(places: int) -> int:
    return int(10**places)


def as_number(total: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """An unscaled Int128 as an integer or decimal, null where it is out of range."""
    if not isinstance(dtype, pl.Decimal):
        return total.cast(dtype, strict=False)
    in_range = pl.when(total.abs() < _unit(dtype.precision)).then(total).cast(WHOLE)
    # A whole number times 0.01 has the same digits, two of them after the point.
    return (in_range * pl.lit(Decimal(1).scaleb(-dtype.scale))).cast(dtype)


def arithmetic_of_values(sign: ArithmeticOperator, dtype: pl.DataType) -> Callable[[Any, Any], Any]:
    """The same for single values that are not null, converted to floats where the result is one."""
    if sign == "/":
        return lambda one, other: one / other if other else None
    if dtype == pl.Float32():
        # Spark rounds the result of two numbers of 32 bits to 32 bits.
        return lambda one, other: float(np.float32(_COMPUTED[sign](one, other)))
    if dtype.is_float():
        return _COMPUTED[sign]
    if isinstance(dtype, pl.Decimal):
        exact = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply}[sign]
        return lambda one, other: exact(Decimal(one), Decimal(other))
    return lambda one, other: _fitting(_COMPUTED[sign](one, other), dtype)


def _fitting(value: int | None, dtype: pl.DataType) -> int | None:
    return value if value is not None and fits(value, dtype) else None


def _remainder(one: int, other: int) -> int | None:
    return None if other == 0 else abs(one) % abs(other) * (-1 if one < 0 else 1)


def _quotient(one: int, other: int) -> int | None:
    return None if other == 0 else abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


_COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "%": _remainder,
    "div": _quotient,
}


def can_cast(source: pl.DataType, target: pl.DataType) -> bool:
    """Whether a cast is supported.

    >>> can_cast(pl.String(), pl.Int32()), can_cast(pl.Float64(), pl.String())
    (True, False)
    """
    if source in (target, pl.Null()):
        return True
    if target.is_integer():
        return source.is_numeric() or source == pl.String()
    if target == pl.Float64():
        return source.is_numeric() or source == pl.String()
    if isinstance(target, pl.Decimal):
        return source.is_integer() or isinstance(source, pl.Decimal)
    return target == pl.String() and (
        source.is_integer() or isinstance(source, pl.Decimal) or source in (pl.Boolean(), pl.Date())
    )


def cast_of_columns(operand: Operand, target: pl.DataType) -> pl.Expr:
    """A value in a type that `can_cast` allows."""
    value, source = operand.value, operand.dtype
    if source == pl.String() and target.is_numeric():
        pattern = (_INTEGER if target.is_integer() else _NUMBER).pattern
        text = value.str.strip_chars(_BLANK)
        return pl.when(text.str.contains(f"^({pattern})$")).then(text).cast(target, strict=False)
    if isinstance(target, pl.Decimal) and source.is_numeric():
        return as_number(_rescaled(operand, target), target)
    if isinstance(source, pl.Decimal) and target.is_integer():
        whole = value.to_physical()
        return (whole.abs() // _unit(source.scale) * whole.sign()).cast(target, strict=False)
    if source == pl.Date() and target == pl.String():
        return value.dt.to_string("%Y-%m-%d")
    return value.cast(target, strict=False)


def _rescaled(operand: Operand, target: pl.Decimal) -> pl.Expr:
    """The unscaled value rounded half away from zero to the target's scale; null where it would not fit."""
    precision, scale = digits_of(operand.dtype)
    whole, more = unscaled(operand), target.scale - scale
    if more >= 0:
        room = target.precision - target.scale + scale
        small = whole if room >= precision else pl.when(whole.abs() < _unit(max(room, 0))).then(whole)
        return small * _unit(more)
    unit = _unit(-more)
    rest = whole.abs() % unit
    return (whole.abs() // unit + (rest * 2 >= unit).cast(pl.Int128)) * whole.sign()


def cast_of_values(source: pl.DataType, target: pl.DataType) -> Callable[[Any], Any]:
    """The same for single values that are not null."""
    if source == target:
        return lambda value: value
    if source == pl.String():
        pattern, convert = (_INTEGER, int) if target.is_integer() else (_NUMBER, float)
        return lambda text: _read(text.strip(_BLANK), pattern, convert, target)
    if target.is_float():
        return float
    if target.is_integer():
        return lambda value: _fitting(int(value), target) if isfinite(value) else None
    if isinstance(target, pl.Decimal):
        return lambda value: _fitting_decimal(Decimal(value), target)
    if source == pl.Boolean():
        return lambda value: "true" if value else "false"
    if source == pl.Date():
        return lambda days: str(np.datetime64(days, "D"))
    return lambda value: f"{value:f}" if isinstance(value, Decimal) else str(value)


def _read(text: str, pattern: re.Pattern[str], convert: Callable[[str], Any], target: pl.DataType) -> Any:
    if pattern.fullmatch(text) is None:
        return None
    value = convert(text)
    return value if isinstance(value, float) else _fitting(value, target)


def _fitting_decimal(value: Decimal, target: pl.Decimal) -> Decimal | None:
    rounded = value.quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP, _EXACT)
    return rounded if abs(rounded.scaleb(target.scale, _EXACT)) < 10**target.precision else None
