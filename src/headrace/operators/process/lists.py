"""Columns of lists of structs as Python lists of tuples and back, all cells at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc


def unnested(column: pl.Series) -> list[list[tuple[Any, ...]]]:
    """The elements of each cell; a null cell has none.

    >>> column = pl.Series([[{"a": 1, "b": 2}], None], dtype=pl.List(pl.Struct({"a": pl.Int64, "b": pl.Int64})))
    >>> unnested(column)
    [[(1, 2)], []]
    """
    arrow = column.to_arrow(compat_level=pl.CompatLevel.oldest())
    lengths = pc.fill_null(pc.list_value_length(arrow), 0).to_pylist()
    # Straight from Arrow: the same by expressions takes many times longer when there are few cells.
    flat = iter(zip(*(pl.Series(field).to_list() for field in arrow.flatten().flatten()), strict=True))
    return [list(islice(flat, length)) for length in lengths]


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
    fields = dtype.inner.fields
    arrays = [
        pl.Series(values, dtype=field.dtype, strict=True).to_arrow(compat_level=pl.CompatLevel.oldest())
        for field, values in zip(fields, columns, strict=True)
    ]
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    offsets = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    elements = pa.StructArray.from_arrays(arrays, [field.name for field in fields])
    return pl.Series(pa.LargeListArray.from_arrays(offsets, elements, mask=pa.array(lengths == 0)), dtype=dtype)
