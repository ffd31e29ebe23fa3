"""Rows of a small table converted to its declared columns."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from headrace.connectors.base.conversion import from_value
from headrace.connectors.base.decoding import type_name
from headrace.errors import HeadraceError

MOST_BYTES = 512 << 20


def fitted(rows: pl.DataFrame, columns: Mapping[str, pl.DataType], *, table: str) -> pl.DataFrame:
    """The rows with these columns and no others; fails when values do not fit."""
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        raise HeadraceError(
            "TABLE_COLUMN_MISSING",
            f"{table} has no column {', '.join(missing)}, only {', '.join(rows.columns)}. Restore it and start again.",
        )
    size = int(rows.estimated_size())
    if size > MOST_BYTES:
        raise HeadraceError(
            "TABLE_TOO_LARGE",
            f"{table} takes {size >> 20} MiB, but every worker would hold all of it; at most "
            f"{MOST_BYTES >> 20} MiB are allowed. Read fewer rows or columns, or use hr.lookup or hr.temporal_join.",
        )
    return pl.DataFrame([_fitted(rows[name], dtype, table) for name, dtype in columns.items()])


def _fitted(values: pl.Series, dtype: pl.DataType, table: str) -> pl.Series:
    if values.dtype == dtype:
        return values
    converted = from_value(values, dtype)
    if converted.null_count() > values.null_count():
        other = values.filter(converted.is_null() & values.is_not_null())[0]
        raise HeadraceError(
            "TABLE_TYPE",
            f"{table}: column {values.name!r} is {type_name(values.dtype)} and holds {other!r}, "
            f"which does not fit the declared {type_name(dtype)}. Correct the table.",
        )
    return converted
