"""When Headrace's batches were done, as the history of a flow tells."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from headrace.observe import history


def done_at(flow: Path) -> tuple[float, ...]:
    """The moment at which each batch that read rows was done, in seconds since the epoch."""
    read = (entry for entry in history.read(flow) if entry.account.read)
    return tuple(entry.clock / 1_000_000 + entry.seconds.batch for entry in read)


def seconds_of(flow: Path) -> tuple[float, ...]:
    """What each batch that read rows took, with the look for rows before it; the flow must never have waited."""
    moments = done_at(flow)
    if not moments:
        return ()
    first = next(entry for entry in history.read(flow) if entry.account.read)
    return (first.seconds.batch, *(after - before for before, after in pairwise(moments)))
