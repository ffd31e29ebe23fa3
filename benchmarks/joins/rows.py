"""The rows of the joins: the bids of the windows benchmark, and beside them the bidders' tiers as they change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.windows import rows as bids
from benchmarks.windows.rows import BIDDERS, FIRST_TIME, OUT_OF_ORDER, PARTITIONS, ROWS_PER_MILLISECOND, Message

BIDS_PER_CHANGE = 20
BEFORE_ALL = 2 * OUT_OF_ORDER
"""How long before the first bid every bidder has a tier; bids that are an hour late find none."""


def tiers_of(topic: str) -> str:
    """The topic of tiers beside a topic of bids.

    >>> tiers_of("bids")
    'bids_tiers'
    """
    return f"{topic}_tiers"


@dataclass(frozen=True, slots=True)
class Rows(bids.Rows):
    """Bids, and a topic with one change of a bidder's tier for twenty of them, as much out of order."""

    def to_topic(self, servers: str) -> str:
        """Fill both topics; that of tiers has the bidder as the key of its messages, by which they are partitioned."""

        def messages(frame: pl.DataFrame) -> Iterator[Message]:
            for text, bidder in zip(bids.json_rows(frame), frame["bidder"], strict=True):
                yield Message(text, bidder % PARTITIONS, b'{"bidder":%d}' % bidder)

        bids.fill_topic(servers, tiers_of(self.name), map(messages, self._tiers()))
        # Without super(): in a class with slots it does not find its own class.
        return bids.Rows.to_topic(self, servers)

    def _tiers(self) -> Iterator[pl.DataFrame]:
        everybody = np.arange(BIDDERS)
        yield _frame(everybody, np.full(BIDDERS, FIRST_TIME - BEFORE_ALL), everybody % 10)
        changes = self.number // BIDS_PER_CHANGE
        for first in range(0, changes, BIDDERS):
            random = np.random.default_rng([11, first])
            number = np.arange(first, min(first + BIDDERS, changes))
            at = FIRST_TIME + number * BIDS_PER_CHANGE // ROWS_PER_MILLISECOND
            at -= random.integers(0, OUT_OF_ORDER, number.size)
            # Each bidder once in a chunk: which of two changes at the same time is the last would be each system's own.
            yield _frame(random.permutation(BIDDERS)[: number.size], at, random.integers(0, 1_000, number.size))
        yield _frame(np.arange(PARTITIONS), np.full(PARTITIONS, self.closing_time), np.zeros(PARTITIONS, np.int64))


def _frame(bidders: npt.NDArray[np.int64], at: npt.NDArray[np.int64], tiers: npt.NDArray[np.int64]) -> pl.DataFrame:
    return bids.with_time(pl.DataFrame({"bidder": bidders, "tier": tiers, "at": at}))
