"""Values of an author's code as the declared types hold them: what does not fit is an error of that call."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, NoReturn

import numpy as np
import polars as pl

from headrace.expressions.operands import LARGEST_PRECISION
from headrace.schemas import spark_type

Fit = Callable[[Any], Any]
"""The value as it is stored, a copy where it could be changed afterwards; raises ValueError for what does not fit."""

_LARGEST_SHORT = float(np.finfo(np.float32).max)
_WHOLE: dict[pl.DataType, int] = {pl.Int8(): 7, pl.Int16(): 15, pl.Int32(): 31, pl.Int64(): 63}


def fitting(dtype: pl.DataType) -> Fit:
    """How a value becomes one of a type; None fits every type.

    >>> fitting(pl.Int8())(127)
    127
    >>> fitting(pl.Int8())("7")
    Traceback (most recent call last):
    ValueError: '7' is not TINYINT
    """
    if dtype in _WHOLE:
        return _whole(dtype, 2 ** _WHOLE[dtype])
    if isinstance(dtype, pl.Decimal):
        return _decimal(dtype)
    if isinstance(dtype, pl.List):
        return _list(dtype)
    if isinstance(dtype, pl.Struct):
        return _struct(dtype)
    if isinstance(dtype, pl.Datetime):
        return _moment(dtype)
    if dtype.is_float():
        return _float(dtype)
    if dtype == pl.String():
        return _text(dtype)
    exact = {pl.Boolean(): (bool,), pl.Binary(): (bytes,), pl.Date(): (date,), pl.Duration("us"): (timedelta,)}
    return _exact(dtype, exact[dtype])


def one_nan(key: Any) -> Any:
    """A key of a map; not-a-number is always the same object, because nothing else tells that it is equal to itself.

    >>> one_nan(float("nan")) is one_nan(float("nan"))
    True
    """
    return math.nan if key != key else key


def is_copied(dtype: pl.DataType) -> bool:
    """Whether values of a type could be changed by whoever holds them."""
    return dtype.is_nested()


def _refuse(value: Any, dtype: pl.DataType, why: str = "") -> NoReturn:
    said = repr(value)
    shown = said if len(said) <= 100 else f"{said[:100]}..."
    raise ValueError(f"{shown} is not {spark_type(dtype, 'value').simpleString().upper()}{why}")


def _whole(dtype: pl.DataType, bound: int) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is int:
            if -bound <= value < bound:
                return value
            _refuse(value, dtype, ", which ends before that")
        if value is None:
            return None
        return fit(int(value)) if isinstance(value, np.integer) else _refuse(value, dtype)

    return fit


def _float(dtype: pl.DataType) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is float or value is None:
            return value
        if type(value) is int or isinstance(value, np.number):
            return float(value)
        return _refuse(value, dtype)

    def fit_short(value: Any) -> Any:
        given = fit(value)
        if given is None:
            return None
        if _LARGEST_SHORT < abs(given) < math.inf:
            _refuse(value, dtype, ", which ends before that")
        return float(np.float32(given))

    return fit_short if dtype == pl.Float32() else fit


def _text(dtype: pl.DataType) -> Fit:
    def fit(value: Any) -> Any:
        if value is None or (type(value) is str and value.isascii()):
            return value
        if not isinstance(value, str):
            _refuse(value, dtype)
        try:
            value.encode()
        except UnicodeEncodeError:
            _refuse(value, dtype, ": it is no valid Unicode")
        return value

    return fit


def _exact(dtype: pl.DataType, types: tuple[type, ...]) -> Fit:
    def fit(value: Any) -> Any:
        if value is None or type(value) in types:
            return value
        return value.item() if isinstance(value, np.bool_) and bool in types else _refuse(value, dtype)

    return fit


def _moment(dtype: pl.Datetime) -> Fit:
    zoned = dtype.time_zone is not None

    def fit(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, datetime) or (value.tzinfo is not None and not zoned):
            _refuse(value, dtype)
        if not zoned:
            return value
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    return fit


def _decimal(dtype: pl.Decimal) -> Fit:
    last_digit = Decimal(1).scaleb(-dtype.scale)
    wide = Context(prec=2 * LARGEST_PRECISION)

    def fit(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is int:
            value = Decimal(value)
        if not isinstance(value, Decimal) or not value.is_finite():
            _refuse(value, dtype)
        if value and value.adjusted() >= dtype.precision - dtype.scale:
            _refuse(value, dtype, ": it has too many digits")
        fitted = value.quantize(last_digit, context=wide)
        if fitted != value:
            _refuse(value, dtype, ": it has too many digits")
        return fitted

    return fit


def _list(dtype: pl.List) -> Fit:
    inner = fitting(_instance(dtype.inner))

    def fit(value: Any) -> Any:
        if value is None:
            return None
        return [inner(each) for each in value] if isinstance(value, list | tuple) else _refuse(value, dtype)

    return fit


def _struct(dtype: pl.Struct) -> Fit:
    fields = {field.name: fitting(_instance(field.dtype)) for field in dtype.fields}

    def fit(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict) or not value.keys() <= fields.keys():
            _refuse(value, dtype)
        return {name: inner(value.get(name)) for name, inner in fields.items()}

    return fit


def _instance(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made
