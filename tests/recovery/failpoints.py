"""Ways for a job to die at a named step: they wrap the library's own functions in the process that is to die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.checkpoint.storage import LocalStorage

FAILPOINT = "HEADRACE_TEST_FAILPOINT"
"""What the workers of a job are told: step, batch, marker and process group."""
AGAIN = ("a task fails", "a task runs twice at once")
IN_TASKS = (*AGAIN, "segment half written", "segment written and not reported", "compaction half done")


def crash(marker: str, group: int) -> None:
    """Leave proof that this point was reached, then end the whole process group without any clean-up."""
    with Path(marker).open("w", encoding="utf-8") as stream:
        stream.flush()
        os.fsync(stream.fileno())
    os.killpg(group, signal.SIGKILL)
    os.killpg(os.getpgrp(), signal.SIGKILL)  # Spark's Python workers have a group of their own


def nothing() -> None:
    """Go on."""


def wrap(
    owner: type | ModuleType,
    method: str,
    here: Callable[..., bool],
    *,
    before: Callable[[], None] = nothing,
    after: Callable[[], None] = nothing,
) -> None:
    """Do something before or after those calls of a method, or of a module's function, that are meant."""
    original = getattr(owner, method)

    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        chosen = here(*arguments)
        if chosen:
            before()
        result = original(self, *arguments, **named)
        if chosen:
            after()
        return result

    setattr(owner, method, wrapped)


def half_written(
    storage: type[LocalStorage], here: Callable[[str], bool], die: Callable[[], None], *, whole: bool = False
) -> None:
    """Die when half of a file is on the disk, or all of it and nobody has been told."""
    original = storage.write

    def write(self: LocalStorage, name: str, content: Any) -> None:
        if not here(name):
            original(self, name, content)
            return
        original(self, name, content if whole else memoryview(content)[: len(memoryview(content)) // 2])
        die()

    storage.write = write  # type: ignore[method-assign]
