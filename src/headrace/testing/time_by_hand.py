"""A watermark that the timeline sets, where a pipeline would compute it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.event_time.strategy import BEGINNING, TimeStrategy
from headrace.event_time.time_keeper import TimeKeeper
from headrace.event_time.tracker import WatermarkTracker
from headrace.testing.engine import SOURCES, Setting


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


def by_hand(time: TimeKeeper, setting: Setting) -> None:
    """Let the timeline set the watermarks that a flow would compute."""
    for source, tracker in time.trackers.items():
        replaced = WatermarkByHand(setting.strategy)
        replaced.restore(tracker.saved())
        time.trackers[source] = replaced


def set_watermarks(time: TimeKeeper, setting: Setting) -> None:
    """Hand the timeline's watermarks to the trackers that take them."""
    for side, watermark in setting.watermarks.items():
        tracker = time.trackers[SOURCES[side]]
        if isinstance(tracker, WatermarkByHand):
            tracker.set_to = watermark
