"""Rows of a small table in the columns that it was declared with."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from headrace.errors import HeadraceError

MOST_BYTES = 512 << 20


def fitted(rows: pl.DataFrame, columns: Mapping[str, pl.DataType], *, table: str) -> pl.DataFrame:
    """The rows with these columns, and no others; what does not fit is an error.

    >>> fitted(pl.DataFrame({"id": [1], "more": [2]}), {"id": pl.Int64()}, table="ids").columns
    ['id']
    """
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        raise HeadraceError(
            "TABLE_COLUMN_MISSING",
            f"{table} has no column {', '.join(missing)}, only {', '.join(rows.columns)}. Put it back, or start the "
            "pipeline with another definition.",
        )
    size = int(rows.estimated_size())
    if size > MOST_BYTES:
        raise HeadraceError(
            "TABLE_TOO_LARGE",
            f"{table} takes {size >> 20} MiB, but every worker would hold all of it; at most "
            f"{MOST_BYTES >> 20} MiB are taken. Read fewer rows or columns, or use hr.lookup or hr.temporal_join.",
        )
    try:
        return rows.select(pl.col(name).cast(dtype) for name, dtype in columns.items())
    except pl.exceptions.PolarsError as problem:
        raise HeadraceError(
            "TABLE_TYPE", f"{table} does not fit the types it was declared with: {problem}. Mend the table."
        ) from None
