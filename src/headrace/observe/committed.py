"""What a folder of ``hr.to_files`` holds, by its commit list: no Spark, and no row of an unfinished batch."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import polars as pl

from headrace.storage import COMMITS


def commits(folder: Path) -> list[Path]:
    """The commit files of a folder, oldest batch first."""
    listed = (folder / COMMITS).glob("*.json")
    return sorted((file for file in listed if not file.name.startswith(".")), key=_batch)


def rows_of(commit: Path) -> pl.DataFrame:
    """The rows of one committed batch."""
    listing = json.loads(commit.read_text(encoding="utf-8"))
    root = commit.parent.parent
    read = pl.read_parquet if listing["format"] == "parquet" else pl.read_ndjson
    return pl.concat([read(root / file) for file in listing["files"]])


def committed_rows(folder: Path, *, but: Collection[str] = ()) -> pl.DataFrame:
    """All rows of a folder's committed batches, without the commits named; no column at all when there is none."""
    frames = [rows_of(commit) for commit in commits(folder) if commit.name not in but]
    return pl.concat(frames) if frames else pl.DataFrame()


def _batch(commit: Path) -> tuple[str, str]:
    """Names end with generation and batch, which count before the output's name."""
    output, generation, batch = commit.stem.rsplit("-", 2)
    return f"{generation}-{batch}", output
