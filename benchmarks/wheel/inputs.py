"""The rows of a case as Parquet files: the same for every system, every run and every machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = "k BIGINT, ts TIMESTAMP, v DOUBLE"
FILES_PER_BATCH = 2
ROW_GROUP = 250_000
MINUTE = 60_000_000
FIRST_TIME = 1_767_225_600_000_000 + 6 * MINUTE
"""2026-01-01T00:06 in microseconds: a window of an hour then closes in every fifth batch of 12 minutes."""
OUT_OF_ORDER = 10_000_000
VERY_LATE = 240 * MINUTE
LATE_FROM = 2
"""The first batch with late rows; Spark judges lateness by the watermark of the batch before the last."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the files of a case hold: ``batches`` has the number of rows of each batch."""

    name: str
    keys: int
    batches: tuple[int, ...]
    minutes: int = 12
    """Event time that passes in a batch."""
    hot: bool = False
    """Whether half of all rows have one key."""
    covering: bool = False
    """Whether keys come in turns, so that every ``keys`` rows have all of them; otherwise they are drawn at random."""

    def write(self, root: Path) -> Path:
        """Write the files, two for each batch, dated so that every system takes them in the same order."""
        folder = root / self.name
        folder.mkdir(parents=True)
        oldest = int(time.time()) - len(self.batches) - 60
        for batch, table in self._tables():
            half = table.num_rows // FILES_PER_BATCH
            for part in range(FILES_PER_BATCH):
                file = folder / f"{batch:05d}-{part}.parquet"
                pq.write_table(table.slice(part * half, half), file, row_group_size=ROW_GROUP)
                os.utime(file, (oldest + batch, oldest + batch))
        return folder

    def _tables(self) -> Iterator[tuple[int, pa.Table]]:
        random = np.random.default_rng(7)
        earlier = 0
        for batch, rows in enumerate(self.batches):
            columns = {
                "k": self._keys(random, rows, earlier),
                "ts": pa.array(self._times(random, rows, batch), pa.timestamp("us", tz="UTC")),
                # Quarters: sums are exact in whatever order they are added, so results can be compared bit by bit.
                "v": random.integers(0, 4000, rows) / 4,
            }
            yield batch, pa.table(columns)
            earlier += rows

    def _keys(self, random: np.random.Generator, rows: int, earlier: int) -> npt.NDArray[np.int64]:
        if self.covering:
            # A prime step visits every key once before any key comes again.
            return (np.arange(earlier, earlier + rows, dtype=np.int64) * 1_000_003) % self.keys
        keys = random.integers(0, self.keys, rows)
        return np.where(random.random(rows) < 0.5, 0, keys) if self.hot else keys

    def _times(self, random: np.random.Generator, rows: int, batch: int) -> npt.NDArray[np.int64]:
        """Times move forward with the rows of each file, a little out of order; one row in a thousand is very late."""
        length = self.minutes * MINUTE
        place = np.tile(np.arange(rows // FILES_PER_BATCH), FILES_PER_BATCH)
        times = FIRST_TIME + batch * length + place * length // (rows // FILES_PER_BATCH)
        times -= random.integers(0, OUT_OF_ORDER, rows)
        if batch >= LATE_FROM:
            times[::1000] -= VERY_LATE
        return times // 1000 * 1000
