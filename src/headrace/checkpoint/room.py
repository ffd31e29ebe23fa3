"""A disk that is full: how it is known, and when there is room again."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.checkpoint.storage import Storage
from headrace.errors import HeadraceError

ROOM = 1 << 20
"""So many bytes must fit before work goes on."""
_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))


def is_full(problem: BaseException | None) -> bool:
    """Whether an error says that a disk is full, here or, by its words, in a task or in Spark."""
    while problem is not None:
        if any(words in str(problem) for words in _FULL):
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def has_room(storage: Storage) -> bool:
    """Whether something can be written again."""
    name = f"room-{uuid.uuid4().hex}"
    try:
        storage.write(name, bytes(ROOM))
    except OSError as problem:
        if is_full(problem):
            return False
        raise
    storage.delete(name)
    return True


@contextmanager
def needing_room(storage: Storage) -> Iterator[None]:
    """At the start a full disk is an error; later it is waited for."""
    try:
        yield
    except OSError as problem:
        if not is_full(problem):
            raise
        raise HeadraceError(
            "DISK_FULL",
            f"checkpoint {str(storage)!r} cannot be written: {problem}. Nothing is lost. Make room, then start again.",
        ) from problem
