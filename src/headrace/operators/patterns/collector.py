"""Python's search for reference cycles, put off while many small objects are made that have none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cycles_not_searched() -> Iterator[None]:
    """Leave the collector off for a while: it would look through every row again and again and find nothing.

    >>> with cycles_not_searched():
    ...     gc.isenabled()
    False
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
