"""How many rows the next batch may take, so that batches keep to a length whatever the stream brings."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_CAP = 10_000
SMALLEST_CAP = 1_000
AIM = 0.8
"""Batches aim below the target: Spark's own planning and committing comes on top."""
WARM_AFTER = 2
"""The first batches of a process load and compile code, and say nothing about the next."""


@dataclass(slots=True)
class Pace:
    """Learns from each batch; halves or doubles at most, so that one odd batch does no harm.

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

    def __post_init__(self) -> None:
        self.cap = min(self.cap, self.largest or self.cap)

    def learn(self, *, rows: int, seconds: float) -> None:
        """Take in how long a batch with so many rows took."""
        self.warm += 1
        full = rows >= 0.9 * self.cap
        if self.warm <= WARM_AFTER or rows == 0 or not (full or seconds > self.target):
            return
        fitting = rows * min(2.0, max(0.5, AIM * self.target / max(seconds, 0.001)))
        self.cap = min(max(SMALLEST_CAP, int(fitting)), self.largest or int(2 * self.cap))
