"""Spark's Python daemon for jobs that die, or run a task again, while it writes state.

A failpoint in a task must be in the worker's process, and workers are forked from this one.
"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

from pyspark import TaskContext, daemon

from headrace.checkpoint.storage import LocalStorage
from headrace.checkpoint.sweep import FileName
from headrace.state.segment import SegmentFiles
from headrace.wheel.task import STATE
from tests.recovery.failpoints import AGAIN, FAILPOINT, crash, half_written

PATIENCE = 60.0


def install(step: str, batch: int, marker: str, group: int) -> None:
    """Make a task die while or after it writes a segment in a batch."""
    if step in AGAIN:
        _again(step, batch, Path(marker))
        return
    merges: list[bool] = []

    def die() -> None:
        crash(marker, group)

    def chosen(name: str) -> bool:
        is_segment = name.startswith("state/") and FileName.parse(name).batch == batch
        return is_segment and merges[-1] == (step == "compaction half done")

    written = SegmentFiles.write

    def write_segment(self: SegmentFiles, *arguments: Any, level: int, run: int, **named: Any) -> Any:
        # What is merged is of an older run or of a higher level; what a batch writes here is small.
        merges.append(level > 0 or run < batch)
        return written(self, *arguments, level=level, run=run, **named)

    SegmentFiles.write = write_segment  # type: ignore[method-assign]
    half_written(LocalStorage, chosen, die, whole=step == "segment written and not reported")


def _again(step: str, batch: int, marker: Path) -> None:
    """The first attempt of a task fails when its segment is written, or waits there for the segment of a second one."""
    write = LocalStorage.write

    def segments(storage: LocalStorage, slot: int) -> list[str]:
        names = map(FileName.parse, storage.list(STATE))
        return [str(name) for name in names if (name.batch, name.slot) == (batch, slot)]

    def writing(self: LocalStorage, name: str, content: Any) -> None:
        write(self, name, content)
        context = TaskContext.get()
        if not name.startswith(STATE) or context is None or context.attemptNumber() > 0 or context.partitionId() > 0:
            return
        file = FileName.parse(name)
        if file.batch != batch:
            return
        deadline = time.monotonic() + PATIENCE
        while step == "a task runs twice at once" and len(segments(self, file.slot)) < 2:
            if time.monotonic() > deadline:
                raise TimeoutError("no second attempt has written a segment")
            time.sleep(0.02)
        marker.touch()
        if step == "a task fails":
            raise RuntimeError("the task fails after it has written its segment")

    LocalStorage.write = writing  # type: ignore[method-assign]


if __name__ == "__main__":
    step, batch, marker, group = os.environ[FAILPOINT].split("|")
    install(step, int(batch), str(Path(marker)), int(group))
    gc.freeze()
    daemon.manager()
