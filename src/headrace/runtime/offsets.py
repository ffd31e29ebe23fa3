"""What Spark has logged about a batch's input."""

from __future__ import annotations

from pathlib import Path


def brings_rows(spark_checkpoint: Path, batch: int) -> bool:
    """Whether a batch reads anything but ticks: some source moved on since the batch before.

    Each source stands in the plan as two streams, its rows and its ticks, in this order.
    """
    offsets = _offsets(spark_checkpoint, batch)
    earlier = _offsets(spark_checkpoint, batch - 1) or ["-"] * len(offsets)
    return any(now != before and now != "-" for now, before in zip(offsets[::2], earlier[::2], strict=True))


def _offsets(spark_checkpoint: Path, batch: int) -> list[str]:
    """The offset of every stream, in the order of the plan; ``-`` before its first row."""
    file = spark_checkpoint / "offsets" / str(batch)
    return file.read_text().splitlines()[2:] if file.exists() else []
