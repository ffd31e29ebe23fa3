"""A data source in Python: numbers, each with its time, up to the one that a file names."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

START = datetime(2025, 1, 1, tzinfo=UTC)
WITHOUT_TIME = 100
"""Every so many numbers one has no time."""


class Numbers(DataSource):
    """Reads ``newest`` in the folder of its options: so many numbers there are.

    A file ``broken`` stops it; while there is a file ``away`` it tries again and again, and leaves a file ``asked``.
    """

    @classmethod
    def name(cls) -> str:
        """As ``spark.readStream.format`` names it."""
        return "numbers"

    def schema(self) -> str:
        """A number and its time, a second after that of the number before."""
        return "n BIGINT, at TIMESTAMP"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Made on the driver; tasks get a copy."""
        folder = Path(self.options["folder"])
        wait_for_it(folder)
        return NumbersReader(folder)


class NumbersReader(DataSourceStreamReader):
    """Offsets are numbers; a batch is two partitions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def initialOffset(self) -> dict[str, int]:
        """From the first number on."""
        return {"n": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        """Up to the newest number."""
        wait_for_it(self._folder)
        return {"n": int((self._folder / "newest").read_text())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The halves of a batch."""
        middle = (start["n"] + end["n"]) // 2
        return [InputPartition((start["n"], middle)), InputPartition((middle, end["n"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, datetime | None]]:
        """In a task: its numbers."""
        if (self._folder / "broken").exists():
            raise ConnectionError("the numbers are gone")
        for number in range(*partition.value):
            yield number, START + timedelta(seconds=number) if number % WITHOUT_TIME else None


def wait_for_it(folder: Path) -> None:
    """Try to reach the numbers until they are there."""
    while (folder / "away").exists():
        (folder / "asked").touch()
        time.sleep(0.02)


def land(folder: Path, newest: int) -> None:
    """Let there be so many numbers."""
    unfinished = folder / "unfinished"
    unfinished.write_text(str(newest))
    unfinished.rename(folder / "newest")
