"""One turn of the wheel: a key group takes a batch's blobs against its state and emits one blob."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from headrace.nodes import NodeId
from headrace.reports import KeyGroupState, StateReport
from headrace.wheel.codec import decode, encode
from headrace.wheel.operator import AnyOperator, Intake, Joined
from headrace.wheel.pack import Blob
from headrace.wheel.pages import Pages, SparkMapState, StateCache
from headrace.wheel.side_rows import DEAD_LETTERS, failed_letters, write_side_rows
from headrace.wheel.task import Task


def turn(
    operator: AnyOperator, entries: SparkMapState, cache: StateCache, task: Task, blobs: Iterable[Blob]
) -> bytes | None:
    """Apply a batch to one key group; the result rows as a blob, or None when there are none."""
    ordered = sorted(blobs, key=lambda blob: (blob.origin, blob.sequence))
    group = ordered[0].key_group
    partials = _brought(operator, [blob.blob for blob in ordered if blob.blob and not blob.second])
    pages = Pages(entries, operator, cache, (task.flow, operator.name, group))
    bounds = task.time_bounds(operator.name)
    if isinstance(operator, Joined):
        second = _brought(operator.second, [blob.blob for blob in ordered if blob.second])
        applied = operator.apply_both(pages.load(), partials, second, bounds)
    else:
        applied = operator.apply(pages.load(), partials, bounds)
    pages.store(applied)
    due = operator.due(applied.state, bounds)
    late, failed = applied.late, applied.failed
    side = dict(applied.side)
    if late is not None and "late" in operator.side_schemas:
        side["late"] = late
    if failed is not None:
        side[DEAD_LETTERS] = failed_letters(failed, step=operator.name, task=task)
    dropped_second = {operator.second.name: applied.dropped_second} if isinstance(operator, Joined) else {}
    size = 0 if pages.directory is None else pages.directory.size
    task.report(
        NodeId("state", operator.name),
        StateReport(
            KeyGroupState(due.event, due.clock, applied.state.height, size),
            late=0 if late is None else late.height,
            dropped=applied.dropped,
            dropped_second=dropped_second,
            failed=0 if failed is None else int((~failed["is_timer"]).sum()),
            waiting=applied.waiting,
            counters=dict(applied.counters),
            side={
                name: write_side_rows(task, operator.name, name, [rows], part=f"group-{group}")
                for name, rows in side.items()
            },
        ),
        part=group,
    )
    return None if applied.output.is_empty() else encode(applied.output)


def _brought(intake: Intake, blobs: Sequence[bytes]) -> pl.DataFrame:
    """What an input brought, merged."""
    if not blobs:
        return pl.DataFrame(schema=dict(intake.partial_schema))
    partials = decode(blobs)
    return partials if len(blobs) == 1 else intake.merge(partials)
