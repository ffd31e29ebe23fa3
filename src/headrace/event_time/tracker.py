"""The watermark of one source, from the highest event time seen in each of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.event_time.strategy import BEGINNING, MOST_PARTITIONS, TimeStrategy

FORGOTTEN_AFTER = 10
WHOLE = ""
"""The one partition of a source that is not divided."""
OTHERS = "(others)"
"""The partition of all values that come when there are too many to track each."""
UNSEEN = "(unseen)"
"""The partition of all values that have not come yet, when their number is known and not their names."""


@dataclass(slots=True)
class Partition:
    """One partition of a source: its highest event time, and how long it has brought no row."""

    highest: int = BEGINNING
    quiet: int = 0


@dataclass(frozen=True, slots=True)
class SavedWatermark:
    """What the batch log keeps of a source's watermark."""

    watermark: int
    highest: int
    partitions: Mapping[str, int]
    """The highest event time of each partition."""


class WatermarkTracker:
    """Computes ``W = min w(p)`` over the partitions that are not idle; it never goes back.

    Quiet time is handed in by the caller (``pass_time``): it runs only while the flow runs and waits for rows.

    >>> from headrace.event_time.strategy import event_time
    >>> tracker = WatermarkTracker(event_time("at", out_of_order="1 second"))
    >>> tracker.observe({"": 5_000_000})
    >>> tracker.watermark(clock=0)
    4000000
    """

    def __init__(self, strategy: TimeStrategy, *, divided: bool = False) -> None:
        self.strategy = strategy
        expected = (UNSEEN,) if isinstance(strategy.expected, int) else strategy.expected
        whole = strategy.partition is None and not divided
        self.partitions = {name: Partition() for name in ((WHOLE,) if whole else expected)}
        self._unread: frozenset[str] = frozenset()
        self._watermark = BEGINNING
        self._highest = BEGINNING
        self._quiet = 0

    def discover(self, names: Iterable[str]) -> None:
        """Add partitions that the source has, though they may have no row yet."""
        if self.strategy.partition is None:
            for name in names:
                self.partitions.setdefault(name, Partition())

    def pass_time(self, elapsed: int) -> None:
        """Let the idle clocks run, but not of partitions that have rows waiting to be read."""
        self._quiet += 0 if self._unread else elapsed
        for name, partition in self.partitions.items():
            partition.quiet += 0 if self._may_have_rows(name) else elapsed
        idle = self.strategy.idle
        if idle is not None and self.strategy.partition is not None:
            self.partitions = {
                name: known for name, known in self.partitions.items() if known.quiet < FORGOTTEN_AFTER * idle
            }

    def observe(self, highest: Mapping[str, int], *, unread: Iterable[str] = ()) -> None:
        """Take in the highest event time that a batch's rows brought to each partition, and which have more to read."""
        self._unread = frozenset(unread)
        self._quiet = 0 if highest else self._quiet
        for name, time in highest.items():
            known = name in self.partitions or len(self.partitions) < MOST_PARTITIONS
            partition = self.partitions.setdefault(name if known else OTHERS, Partition())
            partition.highest = max(partition.highest, time)
            partition.quiet = 0
            self._highest = max(self._highest, time)
        self._count()

    def watermark(self, *, clock: int, waited: int = 0) -> int:
        """The watermark if the flow had waited this much longer; fixes nothing until ``advance``."""
        if self.strategy.kind == "processing":
            return max(self._watermark, clock)
        active = self._active(waited)
        if active:
            slowest = min(partition.highest for partition in active)
            candidate = slowest - self.strategy.out_of_order if slowest > BEGINNING else BEGINNING
        elif self.strategy.when_all_idle == "advance":
            candidate = self._highest
        else:
            candidate = BEGINNING
        return max(self._watermark, candidate)

    def is_idle(self, *, waited: int = 0) -> bool:
        """Whether the source as a whole has brought no row for so long that nothing waits for it."""
        idle = self.strategy.idle
        if idle is None or self.strategy.kind == "processing" or self._active(waited):
            return False
        return self._quiet + (0 if self._unread else waited) >= idle

    def _active(self, waited: int) -> list[Partition]:
        idle = self.strategy.idle
        return [
            partition
            for name, partition in self.partitions.items()
            if idle is None or partition.quiet + (0 if self._may_have_rows(name) else waited) < idle
        ]

    def _may_have_rows(self, name: str) -> bool:
        """Whether rows of a partition may wait to be read; by a column, any row that waits may be of any partition."""
        return bool(self._unread) if self.strategy.partition is not None else name in self._unread

    def _count(self) -> None:
        """Wait for no further value once as many as are expected have come."""
        expected = self.strategy.expected
        if isinstance(expected, int) and len(self.partitions.keys() - {UNSEEN}) >= expected:
            self.partitions.pop(UNSEEN, None)

    def advance(self, watermark: int) -> None:
        """Fix the watermark of a batch: later ones are never lower."""
        self._watermark = max(self._watermark, watermark)

    def saved(self) -> SavedWatermark:
        """What a restart needs; idle clocks start again at each start."""
        partitions = {name: partition.highest for name, partition in self.partitions.items()}
        return SavedWatermark(self._watermark, self._highest, partitions)

    def restore(self, saved: SavedWatermark) -> None:
        self._watermark = saved.watermark
        self._highest = saved.highest
        by_column = self.strategy.partition is not None
        # By a column only what is declared now is waited for, and not what was declared before.
        known = {name: highest for name, highest in saved.partitions.items() if highest > BEGINNING or not by_column}
        self.partitions |= {name: Partition(highest) for name, highest in known.items()}
        self._count()
