"""approx_count_distinct: HyperLogLog sketches, a whole column of them at a time.

A sketch is bytes: while it is sparse, four for each register that is set (its number and rank), and later one for each
register. The length tells which. The bytes depend only on the set of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, log2

import numpy as np
import numpy.typing as npt
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view

from headrace.errors import DefinitionError
from headrace.expressions.aggregates.aggregate import (
    AggregateFunction,
    AggregateScope,
    BoundAggregate,
    Integers,
    Lists,
    map_groups,
)
from headrace.key_hash import hashes_of

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

_LEAST_ERROR, _LARGEST_ERROR = 0.005, 0.25
_RANK_BITS = 6
_RANKS = 1 << _RANK_BITS
# Sketches counted together: their registers fit the processor's cache.
_COUNT_BLOCK = 256


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
        hashes = hashes_of(values.to_frame(), [values.name])
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
        lists = Lists.of(groups)
        (sketch, entries), (dense, registers) = self._parts(lists.elements)
        dense_owners, first = np.unique(lists.owners[dense], return_index=True)
        if len(registers):
            registers = np.maximum.reduceat(registers, first, axis=0)
        return self._assembled(len(groups), (lists.owners[sketch], entries), (dense_owners, registers))

    def count(self, sketches: pl.Series) -> pl.Series:
        (sketch, entries), (dense, registers) = self._parts(sketches)
        by_rank = np.bincount(sketch * _RANKS + entries % _RANKS, minlength=len(sketches) * _RANKS)
        by_rank = by_rank.reshape(len(sketches), _RANKS)
        for start in range(0, len(dense), _COUNT_BLOCK):
            block = registers[start : start + _COUNT_BLOCK]
            ranks = block + _RANKS * np.arange(len(block))[:, None]
            counted = np.bincount(ranks.ravel(), minlength=len(block) * _RANKS)
            by_rank[dense[start : start + _COUNT_BLOCK]] = counted.reshape(len(block), _RANKS)
        by_rank[:, 0] = self.registers - by_rank[:, 1:].sum(axis=1)
        return pl.Series(np.rint(cardinality(by_rank[:, : 66 - self.precision])).astype(np.int64))

    def _parts(self, sketches: pl.Series) -> tuple[tuple[Integers, Integers], tuple[Integers, Bytes]]:
        """The entries of sparse sketches and the registers of dense ones, both with the numbers of their sketches."""
        is_dense = (sketches.bin.size() == self.registers).fill_null(False)
        dense, sparse = _bytes_of(sketches.filter(is_dense)), _bytes_of(sketches.filter(~is_dense))
        entries = sparse.elements.to_numpy().view("<u4").astype(np.int64)
        registers = dense.elements.to_numpy().reshape(-1, self.registers)
        numbers = np.repeat((~is_dense).arg_true().to_numpy(), sparse.lengths // 4)
        return (numbers, entries), (is_dense.arg_true().to_numpy(), registers)

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
        data = np.zeros(lengths.sum(), dtype=np.uint8)
        place, to_dense = np.arange(len(owners)) - (np.cumsum(filled) - filled)[owners], is_dense[owners]
        data.view("<u4")[(starts[owners] // 4 + place)[~to_dense]] = entries[~to_dense]
        data[(starts[owners] + (entries >> _RANK_BITS))[to_dense]] = entries[to_dense] % _RANKS
        if len(dense_owners):
            sliding_window_view(data, self.registers, writeable=True)[starts[dense_owners]] = registers
        return Lists(pl.Series(data), lengths).series().cast(pl.Binary)

    def _highest(self, owners: Integers, entries: Integers) -> tuple[Integers, Integers]:
        """For each register of an owner the entry with the highest rank."""
        bits = self.precision + _RANK_BITS
        placed = np.sort((owners << bits) | entries)
        placed = placed[np.append(placed[1:] >> _RANK_BITS != placed[:-1] >> _RANK_BITS, True)[: len(placed)]]
        return placed >> bits, placed % (1 << bits)


def cardinality(registers_by_rank: npt.NDArray[np.int64]) -> Floats:
    """The estimated number of distinct values of each sketch (a row) from its number of registers of each rank.

    Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6.

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


def _bytes_of(column: pl.Series) -> Lists:
    return Lists.of(column.cast(pl.Binary).cast(pl.List(pl.UInt8)))


@dataclass(frozen=True, slots=True)
class ApproximateCountDistinct(AggregateFunction):
    """The estimated number of distinct values, with a standard error of at most ``error``."""

    error: float = 0.02

    def __post_init__(self) -> None:
        if not _LEAST_ERROR <= self.error <= _LARGEST_ERROR:
            raise DefinitionError(
                "SKETCH_ERROR_RANGE",
                f"approx_count_distinct({self.argument.text}, {self.error:g}): the error must lie between "
                f"{_LEAST_ERROR} and {_LARGEST_ERROR}. For an exact count use count(DISTINCT {self.argument.text}).",
            )

    def bind(self, scope: AggregateScope) -> BoundAggregate:
        value = scope.canonical(self.argument, "approx_count_distinct").value
        sketches, sketch = HyperLogLog.within(self.error), scope.state("sketch")
        entries = value.map_batches(sketches.entries, pl.Int32(), is_elementwise=True)
        selected = scope.select(pl.when(value.is_not_null()).then(entries)).drop_nulls()
        partial = {"sketch": map_groups(selected, sketches.sketch, pl.Binary())}
        merge = {"sketch": map_groups(sketch, sketches.merge, pl.Binary())}
        number = sketch.map_batches(sketches.count, pl.Int64(), is_elementwise=True)
        return BoundAggregate({"sketch": pl.Binary()}, partial, merge, number, pl.Int64())
