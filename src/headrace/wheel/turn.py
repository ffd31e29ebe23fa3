"""One turn of the wheel: a key group takes a batch's blobs against its state and emits one blob."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from headrace.wheel.cache import StateCache
from headrace.wheel.codec import decode, encode
from headrace.wheel.operator import Operator
from headrace.wheel.pack import Blob
from headrace.wheel.pages import MapState, Pages
from headrace.wheel.side_rows import write_side_rows
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
    edge = task.edge(operator.name)
    applied = operator.apply(pages.load(), partials, edge)
    pages.store(applied)
    due = operator.due(applied.state, edge)
    late = [] if applied.late is None else [applied.late]
    kept = late if operator.late_schema is not None else []
    task.report(
        f"state.{operator.name}",
        {
            "due": due.event,
            "due_clock": due.clock,
            "rows": applied.state.height,
            "bytes": 0 if pages.directory is None else pages.directory.size,
            "late": sum(rows.height for rows in late),
            "dropped": applied.dropped,
            "side": {"late": write_side_rows(task, operator.name, "late", kept, part=f"group-{group}")},
        },
        part=group,
    )
    return None if applied.output.is_empty() else encode(applied.output)
