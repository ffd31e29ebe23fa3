"""Decoded state kept in the worker between batches, trusted only under the stamp that the store holds."""

from __future__ import annotations

from collections import OrderedDict

import polars as pl

Place = tuple[str, str, int]
"""(flow, step, key group)"""

MOST_BYTES = 512 << 20


class StateCache:
    """Frames by place, each under the stamp it was stored with; the least used leave when memory runs out.

    >>> cache = StateCache()
    >>> cache.put(("flow", "step", 1), "a", pl.DataFrame({"n": [1]}))
    >>> cache.get(("flow", "step", 1), "a").height
    1
    >>> cache.get(("flow", "step", 1), "b") is None
    True
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._held: OrderedDict[Place, tuple[str, pl.DataFrame, int]] = OrderedDict()
        self._bytes = 0

    def get(self, place: Place, stamp: str) -> pl.DataFrame | None:
        """The frame of a place, if it was kept under this very stamp."""
        held = self._held.get(place)
        if held is None or held[0] != stamp:
            return None
        self._held.move_to_end(place)
        return held[1]

    def put(self, place: Place, stamp: str, frame: pl.DataFrame) -> None:
        """Keep a frame under the stamp it has just been stored with."""
        self.drop(place)
        size = int(frame.estimated_size())
        self._held[place] = (stamp, frame, size)
        self._bytes += size
        while self._bytes > self._most:
            self.drop(next(iter(self._held)))

    def drop(self, place: Place) -> None:
        """Forget a place."""
        held = self._held.pop(place, None)
        if held is not None:
            self._bytes -= held[2]


WORKER = StateCache()
"""The cache of this worker process; Spark keeps workers between batches."""
