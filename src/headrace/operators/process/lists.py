"""Columns of lists of structs as Python lists of tuples and back, all cells at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa


def unnested(column: pl.Series) -> list[list[tuple[Any, ...]]]:
    """The elements of each cell; a null cell has none.

    >>> column = pl.Series([[{"a": 1, "b": 2}], None], dtype=pl.List(pl.Struct({"a": pl.Int64, "b": pl.Int64})))
    >>> unnested(column)
    [[(1, 2)], []]
    """
    lengths = column.list.len().fill_null(0)
    elements = column.filter(lengths > 0).explode().struct.unnest()
    flat = iter(zip(*(each.to_list() for each in elements), strict=True))
    return [list(islice(flat, length)) for length in lengths.to_list()]


def nested(cells: Sequence[Iterable[tuple[Any, ...]] | None], dtype: pl.DataType) -> pl.Series:
    """A column with the elements of each cell; one without any is null.

    >>> nested([[(1, 2)], None], pl.List(pl.Struct({"a": pl.Int64, "b": pl.Int64}))).to_list()
    [[{'a': 1, 'b': 2}], None]
    """
    assert isinstance(dtype, pl.List)
    assert isinstance(dtype.inner, pl.Struct)
    lists = [() if cell is None else tuple(cell) for cell in cells]
    flat = list(chain.from_iterable(lists))
    columns = zip(*flat, strict=True) if flat else ((),) * len(dtype.inner.fields)
    elements = pl.DataFrame(
        [
            pl.Series(field.name, values, dtype=field.dtype, strict=True)
            for field, values in zip(dtype.inner.fields, columns, strict=True)
        ]
    ).to_struct()
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    offsets = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    arrow = pa.LargeListArray.from_arrays(offsets, elements.to_arrow(compat_level=pl.CompatLevel.oldest()))
    column = pl.Series(arrow, dtype=dtype)
    return column if lengths.all() else pl.select(pl.when(pl.Series(lengths) > 0).then(column)).to_series()
