"""Rows for the check of results: keys that fall silent, come back, and fall silent for good."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.wheel.inputs import Inputs

CLOSING_KEY = -1
"""Has the rows of the last batches, which only move event time; what comes of it is not compared."""
SILENT = range(3, 9)
"""Batches in which odd keys have no rows. Spark fires timers by the watermark of whole batches, Headrace each at its
time, so they agree only on silences of several batches."""
CLOSING = range(10, 13)


@dataclass(frozen=True, slots=True)
class Silences(Inputs):
    """Thirteen batches of the same size with late and unordered rows; keys come in turns, so no other pause is long."""

    def _keys(self, random: np.random.Generator, rows: int, earlier: int) -> npt.NDArray[np.int64]:
        assert self.covering
        assert len(self.batches) == CLOSING.stop
        batch = earlier // rows
        # Without super(): in a class with slots it does not find its own class.
        keys = Inputs._keys(self, random, rows, earlier)
        if batch in CLOSING:
            return np.full_like(keys, CLOSING_KEY)
        return keys // 2 * 2 if batch in SILENT else keys
