"""A 64-bit hash of a column's values that is the same on every machine, in every process and version.

Polars' and Python's own hashes are not, and what is hashed here is stored in state. (The hash of keys lies in a higher
layer and agrees with Spark; this one need not.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.expressions.aggregates.byte_spans import ByteSpans

Words = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
# Rows hashed together: small enough for the temporary arrays to stay in the processor's cache.
_BLOCK = 1 << 14


def stable_hash(column: pl.Series) -> Words:
    """The hash of every value; what a null gets means nothing.

    >>> stable_hash(pl.Series(["a", ""])).tolist()
    [10443419574614846231, 2558736989570252433]
    """
    dtype = column.dtype
    if dtype in (pl.String, pl.Binary):
        return _of_bytes(ByteSpans.of(column))
    if isinstance(dtype, pl.Decimal):
        low, high = _unscaled(column)
        return _mixed(_mixed(low) ^ high)
    if dtype in (pl.Float32, pl.Float64):
        return _mixed(column.cast(pl.Float64).fill_null(0.0).to_numpy().view(np.uint64))
    return _mixed(column.to_physical().cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64))


def _mixed(words: Words) -> Words:
    """SplitMix64: a change of any bit changes each bit of the answer with a chance of one half."""
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def _unscaled(column: pl.Series) -> tuple[Words, Words]:
    """The low and the high half of each decimal without its point."""
    if column.is_empty():
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64)
    array = column.fill_null(0).to_arrow()
    words = np.frombuffer(memoryview(array.buffers()[1]), dtype="<u8").reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    return words[:, 0], words[:, 1]


def _of_bytes(spans: ByteSpans) -> Words:
    # Words are read in place at any byte; the zeros behind the data let the last bytes be read as a whole word.
    words: Words = np.ndarray(len(spans.data) - 7, dtype="<u8", buffer=spans.data, strides=(1,))
    hashes = np.empty(len(spans.starts), dtype=np.uint64)
    for start in range(0, len(hashes), _BLOCK):
        block = slice(start, start + _BLOCK)
        hashes[block] = _of_block(words, spans.starts[block], spans.lengths[block])
    return hashes


def _of_block(words: Words, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Words:
    """Each word of a value is mixed with its place in it, and their sum with the value's length."""
    counts = np.maximum((lengths + 7) >> 3, 1)
    ends = np.cumsum(counts)
    place = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    cut = words[np.repeat(starts, counts) + 8 * place]
    unused = (64 * counts - 8 * lengths).astype(np.uint64)
    cut[ends - 1] &= np.where(unused < 64, _ALL_BITS >> (unused % 64), np.uint64(0))
    mixed = _mixed(cut ^ _mixed(place.view(np.uint64)))
    summed: Words = np.add.reduceat(mixed, ends - counts)
    return _mixed(summed ^ lengths.view(np.uint64))
