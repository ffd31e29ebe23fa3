"""Columns of lists as one column of all elements and the length of each list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """The elements of all lists, one list after the other."""

    elements: pl.Series
    lengths: Integers

    @staticmethod
    def of(column: pl.Series) -> Lists:
        """A column of lists taken apart.

        >>> Lists.of(pl.Series([["a"], [], ["b", "c"]])).owners.tolist()
        [0, 2, 2]
        """
        elements = column.explode(empty_as_null=False, keep_nulls=False)
        return Lists(elements, column.list.len().fill_null(0).to_numpy().astype(np.int64))

    @property
    def owners(self) -> Integers:
        """For each element the number of its list."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def first(self, count: int) -> Lists:
        """The first elements of each list.

        >>> Lists(pl.Series(["b", "c", "d"]), np.array([2, 1])).first(1).series().to_list()
        [['b'], ['d']]
        """
        starts = np.cumsum(self.lengths) - self.lengths
        near = np.arange(len(self.elements)) - starts[self.owners] < count
        return Lists(self.elements.filter(pl.Series(near, dtype=pl.Boolean)), np.minimum(self.lengths, count))

    def series(self) -> pl.Series:
        """The column of lists."""
        offsets = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        lists = pa.LargeListArray.from_arrays(pa.array(offsets), self.elements.to_arrow())
        return pl.Series(values=lists, dtype=pl.List(self.elements.dtype))
