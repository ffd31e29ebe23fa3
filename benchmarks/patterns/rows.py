"""The rows that both systems are given: the bids of the windows benchmark, but no two of a bidder at the same time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from benchmarks.windows import rows as bids
from benchmarks.windows.rows import BIDDERS, CHUNK, FIRST_TIME, OUT_OF_ORDER, ROWS_PER_MILLISECOND, VERY_LATE


@dataclass(frozen=True, slots=True)
class Rows(bids.Rows):
    """Prices are drawn evenly, so a condition over prices picks any share; a bidder bids every five seconds.

    The order of rows at the same time would be each system's own, and with it the matches. So the rows of one
    millisecond have different bidders: each draws from a tenth of them.
    """

    def _chunk(self, first: int) -> pl.DataFrame:
        random = np.random.default_rng([7, first])
        number = np.arange(first, first + CHUNK)
        share = number % ROWS_PER_MILLISECOND
        at = FIRST_TIME + number // ROWS_PER_MILLISECOND
        if self.late_from is not None and first >= self.late_from:
            at[::1001] -= VERY_LATE
        columns = {
            "auction": random.zipf(1.3, CHUNK) % bids.AUCTIONS,
            "bidder": random.integers(0, BIDDERS // ROWS_PER_MILLISECOND, CHUNK) * ROWS_PER_MILLISECOND + share,
            "price": random.integers(0, 1_000_000, CHUNK),
            "at": at,
        }
        # Rows change places with others of the same two seconds.
        block = OUT_OF_ORDER * ROWS_PER_MILLISECOND
        places = np.concatenate([start + random.permutation(block) for start in range(0, CHUNK, block)])
        return pl.DataFrame(columns)[places]
