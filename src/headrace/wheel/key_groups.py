"""Key groups: the unit in which state is spread over a cluster, fixed at a flow's birth."""

from __future__ import annotations

from functools import cache

import polars as pl

from headrace.wheel.key_hash import key_groups

KEY_GROUPS = 64
_MASK = 0xFFFFFFFF


def _murmur3(value: int) -> int:
    """Murmur3 of one 4-byte integer with seed 42, by which Spark assigns shuffle partitions."""

    def rotate(word: int, bits: int) -> int:
        return ((word << bits) | (word >> (32 - bits))) & _MASK

    mixed = rotate((value * 0xCC9E2D51) & _MASK, 15) * 0x1B873593 & _MASK
    hashed = (rotate(42 ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= 4
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35 & _MASK
    return hashed ^ (hashed >> 16)


@cache
def group_ids(groups: int = KEY_GROUPS) -> tuple[int, ...]:
    """An id for each key group, chosen so that Spark spreads the groups evenly.

    Spark puts id ``i`` into partition ``murmur3(i) mod partitions``. Ids 0 to 63 land unevenly (27 and 37 on two
    partitions), so group ``g`` gets the smallest id whose hash is ``g`` modulo the number of groups: every number of
    partitions that divides it then gets equally many.

    >>> from collections import Counter
    >>> Counter(_murmur3(i) % 8 for i in group_ids(64)) == Counter({p: 8 for p in range(8)})
    True
    """
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < groups:
        found.setdefault(_murmur3(candidate) % groups, candidate)
        candidate += 1
    return tuple(found[group] for group in range(groups))


def group_of_rows(frame: pl.DataFrame, key: tuple[str, ...]) -> pl.Series:
    """The key group id of each row."""
    return pl.Series(group_ids(), dtype=pl.Int32).gather(key_groups(frame, key, KEY_GROUPS)).alias("key_group")
