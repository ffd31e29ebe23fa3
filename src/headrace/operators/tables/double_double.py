"""Sums of doubles kept as two doubles, so that what is added and taken away again leaves nothing behind.

The second double holds what the first has no room for: together they have about 32 digits, where one has 16.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def summed(groups: Numbers, high: Floats, low: Floats) -> tuple[Numbers, Floats, Floats]:
    """The sum of each group of finite numbers, as two doubles; the groups come in ascending order.

    >>> groups = np.zeros(4, dtype=np.int64)
    >>> [part.tolist() for part in summed(groups, np.array([0.1, 0.2, -0.1, -0.2]), np.zeros(4))]
    [[0], [0.0], [0.0]]
    """
    order = np.argsort(groups, kind="stable")
    groups, high, low = groups[order], high[order], low[order]
    while True:
        starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]][: len(groups)])
        if len(starts) == len(groups):
            return groups, high, low
        sizes = np.diff(np.r_[starts, len(groups)])
        seconds = (np.arange(len(groups)) - np.repeat(starts, sizes)) % 2 == 1
        place = np.flatnonzero(seconds)
        high[place - 1], low[place - 1] = _added(high[place - 1], low[place - 1], high[place], low[place])
        groups, high, low = groups[~seconds], high[~seconds], low[~seconds]


def _added(high: Floats, low: Floats, other_high: Floats, other_low: Floats) -> tuple[Floats, Floats]:
    # A sum beyond the greatest double is infinite, as it is in SQL; what it has lost cannot be told then.
    with np.errstate(over="ignore", invalid="ignore"):
        plain, lost = _with_loss(high, other_high)
        small, smaller = _with_loss(low, other_low)
        total, lost = _settled(plain, lost + small)
        total, lost = _settled(total, lost + smaller)
    finite = np.isfinite(plain)
    return np.where(finite, total, plain), np.where(finite, lost, 0.0)


def _with_loss(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """A sum, and exactly what rounding took from it (Knuth's two-sum)."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


def _settled(total: Floats, lost: Floats) -> tuple[Floats, Floats]:
    """The same sum with as much of it as fits in the first number."""
    whole = total + lost
    return whole, lost - (whole - total)
