"""How many different values a HyperLogLog sketch has seen, from how many registers have each rank.

Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6. It needs no tables, and
has no bias from none to more values than registers can tell apart.
"""

from __future__ import annotations

from math import log

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def cardinality(registers_by_rank: npt.NDArray[np.int64]) -> Floats:
    """The estimate of each sketch: a row of the array, whose columns are the ranks from 0 to the highest possible.

    >>> cardinality(np.array([[4, 0, 0, 0], [3, 1, 0, 0]])).round(2).tolist()
    [0.0, 1.13]
    """
    by_rank = registers_by_rank.astype(np.float64)
    registers, highest = by_rank.sum(axis=1), by_rank.shape[1] - 1
    total = registers * _of_full(1 - by_rank[:, highest] / registers)
    for rank in range(highest - 1, 0, -1):
        total = (total + by_rank[:, rank]) / 2
    total += registers * _of_empty(by_rank[:, 0] / registers)
    estimate: Floats = registers**2 / (2 * log(2)) / total
    return estimate


def _of_empty(share: Floats) -> Floats:
    """What registers without a value add, from their share of all: the paper's sigma."""
    power, factor, total = share, 1.0, np.where(share == 1.0, np.inf, share)
    while True:
        power = power * power
        longer = total + power * factor
        if np.array_equal(longer, total):
            return total
        total, factor = longer, factor * 2


def _of_full(share: Floats) -> Floats:
    """What registers of the highest rank add, from the share of the others: the paper's tau."""
    root, factor, total = share, 1.0, 1 - share
    while True:
        root, factor = np.sqrt(root), factor / 2
        shorter = total - (1 - root) ** 2 * factor
        if np.array_equal(shorter, total):
            return np.where((share == 0.0) | (share == 1.0), 0.0, total / 3)
        total = shorter
