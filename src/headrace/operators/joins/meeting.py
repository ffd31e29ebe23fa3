"""The rows of a key group at one batch as plain arrays, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.event_time.record import Edge
from headrace.operators.joins.pairs import Places, Side

Flags = npt.NDArray[np.bool_]
NOWHERE: Places = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Gathered:
    """All rows of both sides, those of earlier batches first, each side in the order of arrival."""

    times: Places
    is_right: Flags
    is_new: Flags
    matched: Flags
    """Whether a row has met one in an earlier batch, where that is kept."""
    last: Places
    """The last time at which a row may come that belongs to it."""
    alone: Flags
    """Whether it has no key, so that no row ever belongs to it."""
    keys: Places
    """The number of its key, -1 for keys of which this batch changes nothing."""

    def places(self, chosen: Flags) -> Places:
        """The places of some rows, without those whose key does not matter."""
        return np.flatnonzero(chosen & (self.keys >= 0))

    def side(self, places: Places) -> Side:
        """Rows by key and time."""
        return Side(self.keys[places], self.times[places])

    def passed(self, time: int) -> Flags:
        """Which rows nothing can come for any more when event time has reached ``time``."""
        return (self.last < time) | self.alone


@dataclass(frozen=True, slots=True)
class Couples:
    """Left and right rows by their places; -1 stands for no row."""

    left: Places
    right: Places

    def __getitem__(self, places: Places) -> Couples:
        return Couples(self.left[places], self.right[places])

    @classmethod
    def none(cls) -> Couples:
        """No couple."""
        return cls(NOWHERE, NOWHERE)

    @classmethod
    def of_left(cls, chosen: Flags) -> Couples:
        """Left rows without a right one."""
        places = np.flatnonzero(chosen)
        return cls(places, np.full_like(places, -1))

    @classmethod
    def of_right(cls, chosen: Flags) -> Couples:
        """Right rows without a left one."""
        places = np.flatnonzero(chosen)
        return cls(np.full_like(places, -1), places)


def together(*couples: Couples) -> Couples:
    """Several after one another."""
    some = [each for each in couples if len(each.left)]
    if not some:
        return Couples.none()
    return Couples(np.concatenate([each.left for each in some]), np.concatenate([each.right for each in some]))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a batch does: couples that are taken back, couples that are given, and what the state knows after it."""

    back: Couples
    given: Couples
    matched: Flags
    gone: Flags


class Meeting(Protocol):
    """How rows of two sides meet."""

    def turning(self, rows: Gathered, edge: Edge) -> Flags:
        """The rows whose keys matter in this batch; ``rows.keys`` is not known yet."""

    def outcome(self, rows: Gathered, edge: Edge) -> Outcome:
        """What becomes of the rows."""
