"""Types that an author declares as SQL text: the columns of an output, the values of a state; all may be null."""

from __future__ import annotations

from functools import cache
from typing import Any

import polars as pl
from pyspark.sql import types as spark

from headrace.errors import DefinitionError
from headrace.schemas import parse_ddl, polars_schema


def columns_of(ddl: Any) -> dict[str, pl.DataType]:
    """The columns of an output.

    >>> columns_of("user STRING, failures INT")
    {'user': String, 'failures': Int32}
    """
    text = _text(ddl, "'user STRING, failures INT'")
    return polars_schema(_parsed(text, text))


def type_of_value(sql: Any) -> pl.DataType:
    """The type of a state's values.

    >>> type_of_value("ARRAY<INT>")
    List(Int32)
    """
    return _type_of_value(_text(sql, "'INT'"))


@cache
def _type_of_value(sql: str) -> pl.DataType:
    columns = polars_schema(_parsed(f"value {sql}", sql))
    if len(columns) > 1:
        raise DefinitionError(
            "SCHEMA_UNREADABLE",
            f"a state has values of one type, but {sql!r} are several. For values with fields write "
            "'STRUCT<a: INT, b: STRING>'.",
        )
    return columns["value"]


def _text(given: Any, example: str) -> str:
    if not isinstance(given, str):
        raise DefinitionError(
            "SCHEMA_UNREADABLE", f"types are declared as SQL text, not as {given!r}. Write them as in {example}."
        )
    return given


def _parsed(ddl: str, said: str) -> spark.StructType:
    struct = parse_ddl(ddl)
    if _has_not_null(struct):
        raise DefinitionError(
            "NULLS_UNCHECKED",
            f"{said!r} says NOT NULL, which nothing would check here: what a row does not name is null. Leave it out, "
            "and raise an error in on_row where a value must be there.",
        )
    return struct


def _has_not_null(dtype: spark.DataType) -> bool:
    if isinstance(dtype, spark.StructType):
        return any(not field.nullable or _has_not_null(field.dataType) for field in dtype.fields)
    return isinstance(dtype, spark.ArrayType) and _has_not_null(dtype.elementType)
