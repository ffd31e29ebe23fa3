"""One turn of the wheel: a key group takes a batch's blobs against its state and emits one blob."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from headrace.wheel.cache import StateCache
from headrace.wheel.codec import decode, encode
from headrace.wheel.operator import Operator
from headrace.wheel.pack import Blob
from headrace.wheel.pages import MapState, Pages
from headrace.wheel.task import Task


def turn(operator: Operator, entries: MapState, cache: StateCache, task: Task, blobs: Iterable[Blob]) -> bytes | None:
    """Apply a batch to one key group; the result rows as a blob, or None when there are none."""
    ordered = sorted(blobs, key=lambda blob: (blob.origin, blob.sequence))
    group = ordered[0].key_group
    filled = [blob.blob for blob in ordered if blob.blob]
    partials = decode(filled) if filled else pl.DataFrame(schema=dict(operator.partial_schema))
    if len(filled) > 1:
        partials = operator.merge(partials)
    pages = Pages(entries, operator, cache, (task.flow, operator.name, group))
    applied = operator.apply(pages.load(), partials, task.edge(operator.name))
    pages.store(applied)
    task.report(
        f"state.{operator.name}",
        {
            "due": operator.due(applied.state),
            "rows": applied.state.height,
            "bytes": 0 if pages.directory is None else pages.directory.size,
        },
        part=group,
    )
    return None if applied.output.is_empty() else encode(applied.output)
