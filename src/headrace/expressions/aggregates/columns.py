"""Columns of lists and of bytes as flat NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """A column of lists: the elements of all lists concatenated, and the length of each list."""

    elements: pl.Series
    lengths: Integers

    @staticmethod
    def of(column: pl.Series) -> Lists:
        """Take a column of lists apart.

        >>> Lists.of(pl.Series([["a"], [], ["b", "c"]])).owners.tolist()
        [0, 2, 2]
        """
        elements = column.explode(empty_as_null=False, keep_nulls=False)
        return Lists(elements, column.list.len().fill_null(0).to_numpy().astype(np.int64))

    @property
    def owners(self) -> Integers:
        """For each element the number of its list."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def series(self) -> pl.Series:
        offsets = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        lists = pa.LargeListArray.from_arrays(pa.array(offsets), self.elements.to_arrow())
        return pl.Series(values=lists, dtype=pl.List(self.elements.dtype))


@dataclass(frozen=True, slots=True, eq=False)
class ByteSpans:
    """A column of bytes: all values concatenated, with eight zeros behind them, and the span of each value."""

    data: Bytes
    starts: Integers
    lengths: Integers

    @staticmethod
    def of(column: pl.Series) -> ByteSpans:
        """The spans of a column of strings or bytes; a null is empty.

        >>> ByteSpans.of(pl.Series(["ab", None, "c"])).lengths.tolist()
        [2, 0, 1]
        """
        array = column.cast(pl.Binary).fill_null(b"").to_arrow(compat_level=pl.CompatLevel.oldest())
        _, offset_buffer, data_buffer = array.buffers()
        offsets = np.zeros(1, dtype=np.int64)
        if len(array):
            offsets = np.frombuffer(memoryview(offset_buffer), dtype=np.int64)[array.offset :][: len(array) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        data = np.zeros(last - first + 8, dtype=np.uint8)
        if last > first:
            data[:-8] = np.frombuffer(memoryview(data_buffer), dtype=np.uint8)[first:last]
        return ByteSpans(data, offsets[:-1] - first, np.diff(offsets))

    def rows(self, chosen: Integers, width: int) -> Bytes:
        """The bytes of chosen values of one length, a row for each.

        >>> ByteSpans.of(pl.Series(["ab", "c", "de"])).rows(np.array([0, 2]), 2).tolist()
        [[97, 98], [100, 101]]
        """
        return self._windows(width)[self.starts[chosen]]

    def put(self, chosen: Integers, rows: Bytes) -> None:
        """Write the bytes of chosen values, a row for each."""
        self._windows(rows.shape[1])[self.starts[chosen]] = rows

    def series(self) -> pl.Series:
        offsets = np.append(self.starts, len(self.data) - 8)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pl.Series(values=pa.Array.from_buffers(pa.large_binary(), len(self.starts), buffers), dtype=pl.Binary)

    def _windows(self, width: int) -> Bytes:
        """Every run of ``width`` bytes, as rows that share the memory of the bytes."""
        count = max(len(self.data) - width + 1, 0)
        return np.ndarray((count, width), dtype=np.uint8, buffer=self.data, strides=(1, 1))
