"""The checkpoint folder of a pipeline: whether it can be written, and what Spark logs in it."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

from headrace.errors import HeadraceError


def open_checkpoint(path: str | os.PathLike[str]) -> Path:
    """Create the folder and check that it is writable, before anything runs."""
    folder = Path(path).absolute()
    probe = folder / f".writable-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise HeadraceError(
            "CHECKPOINT_NOT_WRITABLE",
            f"checkpoint {str(folder)!r} cannot be written ({problem.strerror}), so nothing would survive a restart. "
            "Choose a folder this user may write to.",
        ) from problem
    return folder


def brings_rows(spark_checkpoint: Path, batch: int) -> bool:
    """Whether a batch reads anything but ticks: some source moved on since the batch before.

    Each source stands in the plan as two streams, its rows and its ticks, in this order.
    """
    offsets = _offsets(spark_checkpoint, batch)
    earlier = _offsets(spark_checkpoint, batch - 1) or ["-"] * len(offsets)
    return any(now not in (before, "-") for now, before in zip(offsets[::2], earlier[::2], strict=True))


def partitions(spark_checkpoint: Path, batch: int) -> dict[str, list[str]]:
    """The partitions of each source that has any, as a batch reads them."""
    streams = [json.loads(line) for line in _offsets(spark_checkpoint, batch) if line.startswith('{"')]
    return {stream["source"]: list(stream["positions"]) for stream in streams if "positions" in stream}


def _offsets(spark_checkpoint: Path, batch: int) -> list[str]:
    """The offset of every stream, in the order of the plan; ``-`` before its first row."""
    file = spark_checkpoint / "offsets" / str(batch)
    return file.read_text().splitlines()[2:] if file.exists() else []
