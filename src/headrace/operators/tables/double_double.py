"""Sums of doubles in double-double arithmetic, so that adding a value and subtracting it again leaves nothing behind.

A sum is two doubles: the second holds what rounding took from the first. Together they have about 32 digits, where one
double has 16.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


def group_sums(
    groups: Int64Array, high: Float64Array, low: Float64Array
) -> tuple[Int64Array, Float64Array, Float64Array]:
    """The sum of each group of finite numbers, as two doubles; the groups come in ascending order.

    >>> groups = np.zeros(4, dtype=np.int64)
    >>> [part.tolist() for part in group_sums(groups, np.array([0.1, 0.2, -0.1, -0.2]), np.zeros(4))]
    [[0], [0.0], [0.0]]
    """
    order = np.argsort(groups, kind="stable")
    groups, high, low = groups[order], high[order], low[order]
    # Each round adds neighbours of a group in pairs, until every group has one row.
    while True:
        starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]][: len(groups)])
        if len(starts) == len(groups):
            return groups, high, low
        sizes = np.diff(np.r_[starts, len(groups)])
        seconds = (np.arange(len(groups)) - np.repeat(starts, sizes)) % 2 == 1
        second = np.flatnonzero(seconds)
        high[second - 1], low[second - 1] = _add(high[second - 1], low[second - 1], high[second], low[second])
        groups, high, low = groups[~seconds], high[~seconds], low[~seconds]


def _add(
    high: Float64Array, low: Float64Array, other_high: Float64Array, other_low: Float64Array
) -> tuple[Float64Array, Float64Array]:
    # A sum beyond the greatest double is infinite, as in SQL; its rounding error is then unknown.
    with np.errstate(over="ignore", invalid="ignore"):
        plain, error = _two_sum(high, other_high)
        small, smaller = _two_sum(low, other_low)
        total, error = _quick_two_sum(plain, error + small)
        total, error = _quick_two_sum(total, error + smaller)
    finite = np.isfinite(plain)
    return np.where(finite, total, plain), np.where(finite, error, 0.0)


def _two_sum(one: Float64Array, other: Float64Array) -> tuple[Float64Array, Float64Array]:
    """A sum and its exact rounding error (Knuth)."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


def _quick_two_sum(total: Float64Array, error: Float64Array) -> tuple[Float64Array, Float64Array]:
    """The same sum with as much of it as fits in the first number (Dekker)."""
    whole = total + error
    return whole, error - (whole - total)
