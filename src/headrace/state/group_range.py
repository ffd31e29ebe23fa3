"""Key groups: intervals of the hash of a key. Their number is fixed with the flow; a slot has a range of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
_HALF = np.uint64(32)
KEY_GROUPS = 128
"""The number of key groups, unless a flow is created with another."""
MOST_KEY_GROUPS = 32_768


def groups_of(hashes: Hashes, key_groups: int) -> npt.NDArray[np.int64]:
    """The key group of every hash: where it lies among all hashes, so that sorted hashes have sorted groups.

    >>> groups_of(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 128).tolist()
    [0, 64, 127]
    """
    return (((hashes >> _HALF) * np.uint64(key_groups)) >> _HALF).astype(np.int64)


def distinct(hashes: Hashes) -> Hashes:
    """The hashes in their order, each once; several times as fast as ``np.unique``.

    >>> distinct(np.array([7, 3, 7], dtype=np.uint64)).tolist()
    [3, 7]
    """
    ordered = np.sort(hashes)
    first_of_each: Hashes = ordered[np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)]]
    return first_of_each


@dataclass(frozen=True, slots=True)
class GroupRange:
    """The key groups from ``first`` to before ``end``, of ``of`` in all.

    >>> GroupRange.of_slot(1, slots=3, key_groups=128)
    GroupRange(first=42, end=85, of=128)
    """

    first: int
    end: int
    of: int

    @classmethod
    def of_slot(cls, slot: int, *, slots: int, key_groups: int) -> GroupRange:
        return cls(slot * key_groups // slots, (slot + 1) * key_groups // slots, key_groups)

    def divided(self, parts: int) -> list[GroupRange]:
        """The range in about this many parts, each of at least one key group.

        >>> GroupRange(0, 3, 8).divided(2)
        [GroupRange(first=0, end=1, of=8), GroupRange(first=1, end=3, of=8)]
        """
        groups = self.end - self.first
        parts = max(1, min(parts, groups))
        bounds = [self.first + part * groups // parts for part in range(parts + 1)]
        return [GroupRange(first, end, self.of) for first, end in pairwise(bounds)]

    def hashes(self) -> tuple[np.uint64, np.uint64 | None]:
        """The least hash of the range, and the least after it; None where the range ends with the hashes."""
        return self._least(self.first), None if self.end >= self.of else self._least(self.end)

    def _least(self, group: int) -> np.uint64:
        return np.uint64((-(-(group << 32) // self.of)) << 32)

    def slice_of(self, hashes: Hashes) -> slice:
        """The part of sorted hashes that lies in the range."""
        least, behind = self.hashes()
        end = len(hashes) if behind is None else int(np.searchsorted(hashes, behind))
        return slice(int(np.searchsorted(hashes, least)), end)

    def holds(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which hashes lie in the range, whatever their order."""
        least, behind = self.hashes()
        return (hashes >= least) if behind is None else (hashes >= least) & (hashes < behind)

    def shared(self, other: GroupRange) -> GroupRange | None:
        """The groups that are in both ranges."""
        first, end = max(self.first, other.first), min(self.end, other.end)
        return GroupRange(first, end, self.of) if first < end else None

    def without(self, other: GroupRange) -> tuple[GroupRange, ...]:
        """What is left of the range without another."""
        before = GroupRange(self.first, min(self.end, other.first), self.of)
        behind = GroupRange(max(self.first, other.end), self.end, self.of)
        return tuple(each for each in (before, behind) if each.first < each.end)
