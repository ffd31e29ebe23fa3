"""What a folder of ``hr.to_files`` holds, by its commit list: no Spark, and no row of an unfinished batch."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import polars as pl

from headrace.connectors.files.batch_listing import read_listing
from headrace.storage import COMMITS


class CommittedRows:
    """Reads a folder's batches, oldest first and each once, however often it looks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[Path] = set()

    def look(self) -> pl.DataFrame:
        """The rows committed since the last look; no column at all when there are none."""
        listed = set((self._folder / COMMITS).glob("[!.]*.json")) - self._seen
        self._seen |= listed
        frames: list[pl.DataFrame] = []
        for listing in sorted(map(read_listing, sorted(listed)), key=attrgetter("generation", "batch")):
            read = pl.read_parquet if listing.format == "parquet" else pl.read_ndjson
            # Polars takes some names for patterns.
            frames += [read((self._folder / file).read_bytes()) for file in listing.files]
        return pl.concat(frames) if frames else pl.DataFrame()


def committed_rows(folder: Path) -> pl.DataFrame:
    """All rows of a folder's committed batches; no column at all when there is none."""
    return CommittedRows(folder).look()
