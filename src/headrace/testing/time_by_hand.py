"""A watermark that the timeline sets, where a pipeline would compute it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.event_time.strategy import BEGINNING, TimeStrategy
from headrace.event_time.tracker import WatermarkTracker


class WatermarkByHand(WatermarkTracker):
    """Says what it was told, never lower than before."""

    def __init__(self, strategy: TimeStrategy) -> None:
        super().__init__(strategy)
        self.set_to = BEGINNING

    def observe(self, highest: Mapping[str, int], *, unread: Iterable[str] = ()) -> None:
        """Rows do not move it."""

    def watermark(self, *, clock: int, waited: int = 0) -> int:
        """What the timeline said last."""
        return max(self._watermark, self.set_to)
