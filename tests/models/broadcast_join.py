"""A join with a small table in plain Python: what every batch reads, and every row held against every row of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Content = Sequence[tuple[str | None, float]]
"""The rows of the table: a currency and its rate."""


@dataclass(frozen=True)
class Batch:
    """Rows that run together, each a number and a currency."""

    clock: int
    """When it is planned, in seconds since the first."""
    rows: Sequence[tuple[int, str | None]]
    dies: bool
    """Whether it dies and runs again in a new process."""


Joined = tuple[int, float | None, int]
"""The number of a row, the rate that it met, and the version of the table."""


def answer(batches: Sequence[Batch], readings: Sequence[Content | None], *, how: str, refresh: int) -> list[Joined]:
    """What leaves, in the order of the rows; a reading of None is one that fails, after the last they stay the same.

    A process reads when it plans its first batch, and then when the last reading is ``refresh`` seconds old. A version
    is a reading that differs from the one before. A batch that runs again was planned by the process before.
    """
    joined: list[Joined] = []
    table: Content = ()
    version, done = 0, 0
    read_at: int | None = None
    for batch in batches:
        if read_at is None or batch.clock - read_at >= refresh:
            reading = readings[min(done, len(readings) - 1)]
            done, read_at = done + 1, batch.clock
            if reading is not None and (version == 0 or list(reading) != list(table)):
                table, version = reading, version + 1
        for number, currency in batch.rows:
            rates = [rate for known, rate in table if known is not None and known == currency]
            joined += [(number, rate, version) for rate in rates]
            if not rates and how == "left":
                joined.append((number, None, version))
        if batch.dies:
            read_at = None
    return joined
