"""Spark's Python daemon for jobs that die while a task writes state.

A failpoint in a task must be in the worker's process, and workers are forked from this one.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

from pyspark import daemon

from headrace.checkpoint.storage import LocalStorage
from headrace.checkpoint.sweep import FileName
from headrace.state.segment import SegmentFiles
from tests.recovery.failpoints import FAILPOINT, crash, half_written


def install(step: str, batch: int, marker: str, group: int) -> None:
    """Make a task die while or after it writes a segment in a batch."""
    levels: list[int] = []

    def die() -> None:
        crash(marker, group)

    def chosen(name: str) -> bool:
        is_segment = name.startswith("state/") and FileName.parse(name).batch == batch
        return is_segment and bool(levels[-1]) == (step == "compaction half done")

    written = SegmentFiles.write

    def write_segment(self: SegmentFiles, *arguments: Any, level: int, **named: Any) -> Any:
        levels.append(level)
        return written(self, *arguments, level=level, **named)

    SegmentFiles.write = write_segment  # type: ignore[method-assign]
    half_written(LocalStorage, chosen, die, whole=step == "segment written and not reported")


if __name__ == "__main__":
    step, batch, marker, group = os.environ[FAILPOINT].split("|")
    install(step, int(batch), str(Path(marker)), int(group))
    gc.freeze()
    daemon.manager()
