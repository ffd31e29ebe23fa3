"""HyperLogLog sketches, a whole column of them at a time.

A sketch is bytes. While few registers are set it is sparse: four bytes for each of them (its number and rank). Later it
is dense: one byte for each register. The length tells which. The bytes depend only on the set of values, so sketches
merge in any order to the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, log2

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from headrace.expressions.aggregates.aggregate import Integers, Lists

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

_RANK_BITS = 6
_RANKS = 1 << _RANK_BITS
# Sketches counted together: their registers fit the processor's cache.
_COUNT_BLOCK = 256
# Rows hashed together: the temporary arrays fit the processor's cache.
_HASH_BLOCK = 1 << 14
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)


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
        self._windows(rows.shape[1])[self.starts[chosen]] = rows

    def series(self) -> pl.Series:
        offsets = np.append(self.starts, len(self.data) - 8)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pl.Series(values=pa.Array.from_buffers(pa.large_binary(), len(self.starts), buffers), dtype=pl.Binary)

    def _windows(self, width: int) -> Bytes:
        """Every run of ``width`` bytes, as rows that share the memory of the bytes."""
        count = max(len(self.data) - width + 1, 0)
        return np.ndarray((count, width), dtype=np.uint8, buffer=self.data, strides=(1, 1))


@dataclass(frozen=True, slots=True)
class HyperLogLog:
    """Sketches with ``2**precision`` registers; the standard error is ``1.04 / sqrt(2**precision)``."""

    precision: int

    @staticmethod
    def within(error: float) -> HyperLogLog:
        """The smallest sketches with a standard error of at most ``error``.

        >>> HyperLogLog.within(0.02)
        HyperLogLog(precision=12)
        """
        return HyperLogLog(ceil(2 * log2(1.04 / error)))

    @property
    def registers(self) -> int:
        return 1 << self.precision

    def entries(self, values: pl.Series) -> pl.Series:
        """An entry for each value: the number of its register and, in the low six bits, its rank."""
        hashes = stable_hash(values)
        number = (hashes >> np.uint64(64 - self.precision)).astype(np.int32)
        # The rank is the place of the lowest bit that is set; an extra bit above the rest bounds it.
        rest = hashes | np.uint64(1 << (64 - self.precision))
        _, rank = np.frexp((rest & (~rest + np.uint64(1))).astype(np.float64))
        return pl.Series((number << _RANK_BITS) | rank)

    def sketch(self, groups: pl.Series) -> pl.Series:
        lists = Lists.of(groups)
        no_dense = np.empty(0, dtype=np.int64), np.empty((0, self.registers), dtype=np.uint8)
        return self._assembled(len(groups), (lists.owners, lists.elements.to_numpy().astype(np.int64)), no_dense)

    def merge(self, groups: pl.Series) -> pl.Series:
        """The merged sketch of each list of sketches."""
        lists = Lists.of(groups)
        spans = ByteSpans.of(lists.elements)
        dense = np.flatnonzero(spans.lengths == self.registers)
        dense_owners, first = np.unique(lists.owners[dense], return_index=True)
        registers = spans.rows(dense, self.registers)
        if len(registers):
            registers = np.maximum.reduceat(registers, first, axis=0)
        sketch, entries = self._sparse_entries(spans)
        return self._assembled(len(groups), (lists.owners[sketch], entries), (dense_owners, registers))

    def count(self, sketches: pl.Series) -> pl.Series:
        spans = ByteSpans.of(sketches)
        sketch, entries = self._sparse_entries(spans)
        by_rank = np.bincount(sketch * _RANKS + entries % _RANKS, minlength=len(sketches) * _RANKS)
        by_rank = by_rank.reshape(len(sketches), _RANKS)
        dense = np.flatnonzero(spans.lengths == self.registers)
        for block in np.split(dense, range(_COUNT_BLOCK, len(dense), _COUNT_BLOCK)):
            ranks = spans.rows(block, self.registers) + _RANKS * np.arange(len(block))[:, None]
            by_rank[block] = np.bincount(ranks.ravel(), minlength=len(block) * _RANKS).reshape(len(block), _RANKS)
        by_rank[:, 0] = self.registers - by_rank[:, 1:].sum(axis=1)
        return pl.Series(np.rint(cardinality(by_rank[:, : 66 - self.precision])).astype(np.int64))

    def _sparse_entries(self, spans: ByteSpans) -> tuple[Integers, Integers]:
        """The entries of all sparse sketches: the number of each one's sketch, and the entry."""
        sparse = np.flatnonzero(spans.lengths < self.registers)
        counts = spans.lengths[sparse] // 4
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        entries = spans.data.view("<u4")[np.repeat(spans.starts[sparse] // 4, counts) + place]
        return np.repeat(sparse, counts), entries.astype(np.int64)

    def _assembled(self, sketches: int, sparse: tuple[Integers, Integers], dense: tuple[Integers, Bytes]) -> pl.Series:
        """Sketches from entries with their owners, and from registers with theirs; the highest rank counts."""
        (owners, entries), (dense_owners, registers) = sparse, dense
        row = np.full(sketches, -1)
        row[dense_owners] = np.arange(len(dense_owners))
        # Entries of a sketch that is dense already raise its registers.
        raise_dense = row[owners] >= 0
        register = row[owners[raise_dense]] * self.registers + (entries[raise_dense] >> _RANK_BITS)
        np.maximum.at(registers.reshape(-1), register, (entries[raise_dense] % _RANKS).astype(np.uint8))
        owners, entries = self._highest(owners[~raise_dense], entries[~raise_dense])
        # The others stay entries, unless there are so many that registers take no more bytes.
        filled = np.bincount(owners, minlength=sketches)
        is_dense = (4 * filled >= self.registers) | (row >= 0)
        lengths = np.where(is_dense, self.registers, 4 * filled)
        starts = np.cumsum(lengths) - lengths
        data = np.zeros(lengths.sum() + 8, dtype=np.uint8)
        place, to_dense = np.arange(len(owners)) - (np.cumsum(filled) - filled)[owners], is_dense[owners]
        data.view("<u4")[(starts[owners] // 4 + place)[~to_dense]] = entries[~to_dense]
        data[(starts[owners] + (entries >> _RANK_BITS))[to_dense]] = entries[to_dense] % _RANKS
        spans = ByteSpans(data, starts, lengths)
        spans.put(dense_owners, registers)
        return spans.series()

    def _highest(self, owners: Integers, entries: Integers) -> tuple[Integers, Integers]:
        """For each register of an owner the entry with the highest rank."""
        bits = self.precision + _RANK_BITS
        placed = np.sort((owners << bits) | entries)
        placed = placed[np.append(placed[1:] >> _RANK_BITS != placed[:-1] >> _RANK_BITS, True)[: len(placed)]]
        return placed >> bits, placed % (1 << bits)


def cardinality(registers_by_rank: npt.NDArray[np.int64]) -> Floats:
    """The estimated number of distinct values of each sketch (a row) from its number of registers of each rank.

    Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6. It needs no tables
    and is unbiased from no values to more than the registers can tell apart.

    >>> cardinality(np.array([[4, 0, 0, 0], [3, 1, 0, 0]])).round(2).tolist()
    [0.0, 1.13]
    """
    by_rank = registers_by_rank.astype(np.float64)
    registers, highest = by_rank.sum(axis=1), by_rank.shape[1] - 1
    total = registers * _tau(1 - by_rank[:, highest] / registers)
    for rank in range(highest - 1, 0, -1):
        total = (total + by_rank[:, rank]) / 2
    total += registers * _sigma(by_rank[:, 0] / registers)
    estimate: Floats = registers**2 / (2 * log(2)) / total
    return estimate


def _sigma(share: Floats) -> Floats:
    """The correction for empty registers, from their share."""
    power, factor, total = share, 1.0, np.where(share == 1.0, np.inf, share)
    while True:
        power = power * power
        longer = total + power * factor
        if np.array_equal(longer, total):
            return total
        total, factor = longer, factor * 2


def _tau(share: Floats) -> Floats:
    """The correction for registers of the highest rank, from the share of the others."""
    root, factor, total = share, 1.0, 1 - share
    while True:
        root, factor = np.sqrt(root), factor / 2
        shorter = total - (1 - root) ** 2 * factor
        if np.array_equal(shorter, total):
            return np.where((share == 0.0) | (share == 1.0), 0.0, total / 3)
        total = shorter


def stable_hash(column: pl.Series) -> Words:
    """A 64-bit hash of every value, the same on every machine and in every version; the hash of a null is arbitrary.

    Polars' and Python's own hashes are not stable, and these are stored in state.

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
    """SplitMix64: a change of any bit changes each bit of the result with probability one half."""
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def _unscaled(column: pl.Series) -> tuple[Words, Words]:
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
    for start in range(0, len(hashes), _HASH_BLOCK):
        block = slice(start, start + _HASH_BLOCK)
        hashes[block] = _of_block(words, spans.starts[block], spans.lengths[block])
    return hashes


def _of_block(words: Words, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Words:
    """Each word of a value is mixed with its position, and the sum of the words with the value's length."""
    counts = np.maximum((lengths + 7) >> 3, 1)
    ends = np.cumsum(counts)
    place = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    cut = words[np.repeat(starts, counts) + 8 * place]
    unused = (64 * counts - 8 * lengths).astype(np.uint64)
    cut[ends - 1] &= np.where(unused < 64, _ALL_BITS >> (unused % 64), np.uint64(0))
    mixed = _mixed(cut ^ _mixed(place.view(np.uint64)))
    summed: Words = np.add.reduceat(mixed, ends - counts)
    return _mixed(summed ^ lengths.view(np.uint64))
