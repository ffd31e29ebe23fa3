"""How many rows the next batch may take, so that batches keep to a length whatever the stream brings."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

FIRST_CAP = 10_000
SMALLEST_CAP = 1_000
AIM = 0.8
"""Batches aim below the target: Spark's own planning and committing comes on top."""
WARM_AFTER = 2
"""The first batches of a process load and compile code, and say nothing about the next."""
REMEMBERED = 12
"""So many batches tell what a batch costs before its first row."""
ENOUGH = 3
"""Fewer batches tell nothing about that: one odd one among two would pass for its cost."""


@dataclass(slots=True)
class Pace:
    """Learns from each batch; halves or doubles at most, so that one odd batch does no harm.

    A batch costs something before its first row. Where that alone comes near the target, batches of few rows would
    never catch up, so they may take half as long again as an empty one.

    >>> pace = Pace(target=1.0, cap=10_000, warm=2)
    >>> pace.learn(rows=10_000, seconds=0.4)
    >>> pace.cap
    20000
    >>> pace.learn(rows=20_000, seconds=4.0)
    >>> pace.cap
    10000
    """

    target: float
    """Seconds that a batch may take."""
    cap: int = FIRST_CAP
    largest: int | None = None
    warm: int = 0
    """Batches seen so far."""
    seen: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def __post_init__(self) -> None:
        self.cap = min(self.cap, self.largest or self.cap)

    def learn(self, *, rows: int, seconds: float) -> None:
        """Take in how long a batch with so many rows took."""
        self.warm += 1
        if self.warm <= WARM_AFTER or rows == 0:
            return
        self.seen.append((rows, seconds))
        if rows < 0.9 * self.cap and seconds <= self.target:
            return
        empty = self.seconds_of_an_empty_batch()
        aim = max(AIM * self.target, 1.5 * empty)
        fitting = rows * min(2.0, max(0.5, (aim - empty) / max(seconds - empty, 0.001)))
        self.cap = min(max(SMALLEST_CAP, int(fitting)), self.largest or 2 * self.cap)

    def seconds_of_an_empty_batch(self) -> float:
        """What a line through the last batches says; 0 while they are too few, or too much of one size, to tell."""
        rows, seconds = zip(*self.seen, strict=True)
        if len(rows) < ENOUGH or max(rows) < 1.25 * min(rows):
            return 0.0
        _, intercept = np.polyfit(rows, seconds, 1)
        return float(min(max(intercept, 0.0), min(seconds)))
