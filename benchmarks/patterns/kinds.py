"""The patterns that are measured: which prices are an A, a B or a C."""

from __future__ import annotations

from collections.abc import Mapping

Prices = Mapping[str, tuple[int, int]]
"""From and below which price a row meets the condition of a step."""

KINDS: Mapping[str, Prices] = {
    # A tenth of the rows each; seven tenths meet no condition.
    "selective": {"a": (0, 100_000), "b": (100_000, 200_000), "c": (200_000, 300_000)},
    # Every row meets one.
    "dense": {"a": (0, 333_333), "b": (333_333, 666_666), "c": (666_666, 1_000_000)},
}


def condition(column: str, prices: tuple[int, int]) -> str:
    """SQL text that both systems understand.

    >>> condition("price", (0, 10))
    'price >= 0 AND price < 10'
    """
    least, below = prices
    return f"{column} >= {least} AND {column} < {below}"
