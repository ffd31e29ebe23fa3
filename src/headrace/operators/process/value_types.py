"""SQL types of outputs and states, and the conversion of Python values to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import cache
from typing import Any, cast

import numpy as np
import polars as pl
from pyspark.sql import types as spark

from headrace.errors import DefinitionError
from headrace.expressions.operands import INTEGER_BITS, LARGEST_PRECISION
from headrace.schemas import parse_ddl, polars_schema, spark_type

Converter = Callable[[Any], Any]
"""Gives the value as it is stored, a copy if it is mutable; raises ValueError if it does not fit the type."""

_LARGEST_SINGLE = float(np.finfo(np.float32).max)
_EXACT = {pl.Boolean(): bool, pl.Binary(): bytes, pl.Date(): date, pl.Duration("us"): timedelta}


def parse_columns(ddl: Any) -> dict[str, pl.DataType]:
    """Parse the columns of an output.

    >>> parse_columns("user STRING, failures INT")
    {'user': String, 'failures': Int32}
    """
    return _parsed(_as_text(ddl, "'user STRING, failures INT'"))


def parse_type(sql: Any) -> pl.DataType:
    """Parse the type of a state's values.

    >>> parse_type("ARRAY<INT>")
    List(Int32)
    """
    columns = _parsed(_as_text(sql, "'INT'"), column="value ")
    if len(columns) > 1:
        raise DefinitionError(
            "SCHEMA_UNREADABLE",
            f"a state has values of one type, but {sql!r} declares several. For values with fields write "
            "'STRUCT<a: INT, b: STRING>'.",
        )
    return columns["value"]


def _as_text(given: Any, example: str) -> str:
    if not isinstance(given, str):
        raise DefinitionError(
            "SCHEMA_UNREADABLE", f"types must be SQL text, not {given!r}. Write them as in {example}."
        )
    return given


@cache
def _parsed(ddl: str, *, column: str = "") -> dict[str, pl.DataType]:
    struct = parse_ddl(column + ddl)
    if _has_not_null(struct):
        raise DefinitionError(
            "NULLS_UNCHECKED",
            f"{ddl!r} declares NOT NULL, which is not enforced here: a column that a row omits is null. Remove it, "
            "and raise an error in on_row where a value is required.",
        )
    return polars_schema(struct)


def _has_not_null(dtype: spark.DataType) -> bool:
    if isinstance(dtype, spark.StructType):
        return any(not field.nullable or _has_not_null(field.dataType) for field in dtype.fields)
    return isinstance(dtype, spark.ArrayType) and _has_not_null(dtype.elementType)


def converter_for(dtype: pl.DataType) -> Converter:
    """The converter of Python values to a type; None fits every type.

    >>> converter_for(pl.Int8())(127)
    127
    >>> converter_for(pl.Int8())("7")
    Traceback (most recent call last):
    ValueError: '7' is not TINYINT
    """
    if isinstance(dtype, pl.Decimal):
        return _decimal(dtype)
    if isinstance(dtype, pl.List):
        return _list(dtype)
    if isinstance(dtype, pl.Struct):
        return _struct(dtype)
    if isinstance(dtype, pl.Datetime):
        return _timestamp(dtype)
    if dtype.is_integer():
        return _whole(dtype)
    if dtype.is_float():
        return _float(dtype)
    return _string(dtype) if dtype == pl.String() else _exact(dtype)


def canonical_nan(key: Any) -> Any:
    """A key of a map; NaN is always the same object, because a dict finds it only by identity.

    >>> canonical_nan(float("nan")) is canonical_nan(float("nan"))
    True
    """
    return math.nan if key != key else key


def _null_or_refused(value: Any, dtype: pl.DataType, why: str = "") -> None:
    if value is not None:
        text = repr(value)
        shown = text if len(text) <= 100 else f"{text[:100]}..."
        raise ValueError(f"{shown} is not {spark_type(dtype, 'value').simpleString().upper()}{why}")


def _whole(dtype: pl.DataType) -> Converter:
    bound = 1 << (INTEGER_BITS[dtype] - 1)

    def convert(value: Any) -> Any:
        if type(value) is int:
            return value if -bound <= value < bound else _null_or_refused(value, dtype, ": it is out of range")
        return convert(int(value)) if isinstance(value, np.integer) else _null_or_refused(value, dtype)

    return convert


def _float(dtype: pl.DataType) -> Converter:
    is_single = dtype == pl.Float32()

    def convert(value: Any) -> Any:
        if type(value) is not float:
            if type(value) is not int and not isinstance(value, np.number):
                return _null_or_refused(value, dtype)
            value = float(value)
        if not is_single:
            return value
        if _LARGEST_SINGLE < abs(value) < math.inf:
            _null_or_refused(value, dtype, ": it is out of range")
        return float(np.float32(value))

    return convert


def _string(dtype: pl.DataType) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is str and value.isascii():
            return value
        if not isinstance(value, str):
            return _null_or_refused(value, dtype)
        try:
            value.encode()
        except UnicodeEncodeError:
            _null_or_refused(value, dtype, ": it is not valid Unicode")
        return value

    return convert


def _exact(dtype: pl.DataType) -> Converter:
    kind = _EXACT[dtype]

    def convert(value: Any) -> Any:
        if type(value) is kind:
            return value
        return value.item() if isinstance(value, np.bool_) and kind is bool else _null_or_refused(value, dtype)

    return convert


def _timestamp(dtype: pl.Datetime) -> Converter:
    has_zone = dtype.time_zone is not None

    def convert(value: Any) -> Any:
        if not isinstance(value, datetime) or (value.tzinfo is not None and not has_zone):
            return _null_or_refused(value, dtype)
        if not has_zone:
            return value
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    return convert


def _decimal(dtype: pl.Decimal) -> Converter:
    last_digit = Decimal(1).scaleb(-dtype.scale)
    wide = Context(prec=2 * LARGEST_PRECISION)

    def convert(value: Any) -> Any:
        given = Decimal(value) if type(value) is int else value
        if not isinstance(given, Decimal) or not given.is_finite():
            return _null_or_refused(given, dtype)
        if given and given.adjusted() >= dtype.precision - dtype.scale:
            return _null_or_refused(given, dtype, ": it has too many digits")
        converted = given.quantize(last_digit, context=wide)
        return converted if converted == given else _null_or_refused(given, dtype, ": it has too many digits")

    return convert


def _list(dtype: pl.List) -> Converter:
    inner = converter_for(cast(pl.DataType, dtype.inner))

    def convert(value: Any) -> Any:
        is_list = isinstance(value, list | tuple)
        return [inner(each) for each in value] if is_list else _null_or_refused(value, dtype)

    return convert


def _struct(dtype: pl.Struct) -> Converter:
    fields = {field.name: converter_for(cast(pl.DataType, field.dtype)) for field in dtype.fields}

    def convert(value: Any) -> Any:
        if not isinstance(value, dict) or not value.keys() <= fields.keys():
            return _null_or_refused(value, dtype)
        return {name: inner(value.get(name)) for name, inner in fields.items()}

    return convert
