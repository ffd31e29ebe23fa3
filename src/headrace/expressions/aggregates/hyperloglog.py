"""HyperLogLog over whole columns of sketches: one call sketches, merges or counts those of all groups.

A sketch is bytes: while few registers are filled, four bytes for each of them (its number and its rank), later one
byte for each register; the length tells which. It depends on the set of values alone, so sketches merge in any order
to the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.expressions.aggregates.byte_spans import ByteSpans
from headrace.expressions.aggregates.cardinality import cardinality
from headrace.expressions.aggregates.lists import Integers, Lists
from headrace.expressions.aggregates.stable_hash import stable_hash

Registers = npt.NDArray[np.uint8]

_RANK_BITS = 6
_RANKS = 1 << _RANK_BITS
# Sketches counted together: what is needed for each of their registers stays in the processor's cache.
_BLOCK = 256


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
        """How many registers a sketch has."""
        return 1 << self.precision

    def entries(self, values: pl.Series) -> pl.Series:
        """What each value says: the number of a register and, in the low six bits, a rank that it has at least."""
        hashes = stable_hash(values)
        number = (hashes >> np.uint64(64 - self.precision)).astype(np.int32)
        # The rank is the place of the lowest bit that is set; one more bit, above those that are left, bounds it.
        rest = hashes | np.uint64(1 << (64 - self.precision))
        _, rank = np.frexp((rest & (~rest + np.uint64(1))).astype(np.float64))
        return pl.Series((number << _RANK_BITS) | rank)

    def sketch(self, groups: pl.Series) -> pl.Series:
        """The sketches of lists of entries."""
        lists, none = Lists.of(groups), np.empty(0, dtype=np.int64)
        full = np.empty((0, self.registers), dtype=np.uint8)
        return self._written(len(groups), (lists.owners, lists.elements.to_numpy().astype(np.int64)), (none, full))

    def merge(self, groups: pl.Series) -> pl.Series:
        """The sketches that lists of sketches make together."""
        lists = Lists.of(groups)
        spans = ByteSpans.of(lists.elements)
        dense = np.flatnonzero(spans.lengths == self.registers)
        held, first = np.unique(lists.owners[dense], return_index=True)
        full = spans.rows(dense, self.registers)
        if len(full):
            full = np.maximum.reduceat(full, first, axis=0)
        sketch, entries = self._listed(spans)
        return self._written(len(groups), (lists.owners[sketch], entries), (held, full))

    def count(self, sketches: pl.Series) -> pl.Series:
        """The estimated number of different values in each sketch."""
        spans = ByteSpans.of(sketches)
        sketch, entries = self._listed(spans)
        by_rank = np.bincount(sketch * _RANKS + entries % _RANKS, minlength=len(sketches) * _RANKS)
        by_rank = by_rank.reshape(len(sketches), _RANKS)
        dense = np.flatnonzero(spans.lengths == self.registers)
        for block in np.split(dense, range(_BLOCK, len(dense), _BLOCK)):
            ranks = spans.rows(block, self.registers) + _RANKS * np.arange(len(block))[:, None]
            by_rank[block] = np.bincount(ranks.ravel(), minlength=len(block) * _RANKS).reshape(len(block), _RANKS)
        by_rank[:, 0] = self.registers - by_rank[:, 1:].sum(axis=1)
        return pl.Series(np.rint(cardinality(by_rank[:, : 66 - self.precision])).astype(np.int64))

    def _listed(self, spans: ByteSpans) -> tuple[Integers, Integers]:
        """The entries of those sketches that list them, and the number of the sketch in which each is."""
        sparse = np.flatnonzero(spans.lengths < self.registers)
        few = spans.lengths[sparse] // 4
        place = np.arange(few.sum()) - np.repeat(np.cumsum(few) - few, few)
        entries = spans.data.view("<u4")[np.repeat(spans.starts[sparse] // 4, few) + place]
        return np.repeat(sparse, few), entries.astype(np.int64)

    def _written(
        self, sketches: int, listed: tuple[Integers, Integers], dense: tuple[Integers, Registers]
    ) -> pl.Series:
        """Sketches of entries with their owners, and of registers with theirs; the highest rank counts."""
        (owners, entries), (held, full) = listed, dense
        row = np.full(sketches, -1)
        row[held] = np.arange(len(held))
        raising = row[owners] >= 0
        register = row[owners[raising]] * self.registers + (entries[raising] >> _RANK_BITS)
        np.maximum.at(full.reshape(-1), register, (entries[raising] % _RANKS).astype(np.uint8))
        owners, entries = self._highest(owners[~raising], entries[~raising])
        filled = np.bincount(owners, minlength=sketches)
        many = (4 * filled >= self.registers) | (row >= 0)
        lengths = np.where(many, self.registers, 4 * filled)
        starts = np.cumsum(lengths) - lengths
        data = np.zeros(lengths.sum() + 8, dtype=np.uint8)
        place, spread = np.arange(len(owners)) - (np.cumsum(filled) - filled)[owners], many[owners]
        data.view("<u4")[(starts[owners] // 4 + place)[~spread]] = entries[~spread]
        data[(starts[owners] + (entries >> _RANK_BITS))[spread]] = entries[spread] % _RANKS
        spans = ByteSpans(data, starts, lengths)
        spans.put(held, full)
        return spans.series()

    def _highest(self, owners: Integers, entries: Integers) -> tuple[Integers, Integers]:
        """For each register of an owner the entry with the highest rank."""
        bits = self.precision + _RANK_BITS
        placed = np.sort((owners << bits) | entries)
        placed = placed[np.append(placed[1:] >> _RANK_BITS != placed[:-1] >> _RANK_BITS, True)[: len(placed)]]
        return placed >> bits, placed % (1 << bits)
