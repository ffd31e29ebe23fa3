"""Map side of the wheel: rows into few blobs, one for each key group that has something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from headrace.wheel.codec import encode
from headrace.wheel.hot_keys import KeySample
from headrace.wheel.key_groups import group_of_rows
from headrace.wheel.operator import Operator
from headrace.wheel.side_rows import write_side_rows
from headrace.wheel.task import Task

PENDING_ROWS = 4_000_000
BLOB_SCHEMA = "key_group INT, origin INT, sequence INT, blob BINARY"


@dataclass(frozen=True, slots=True)
class Blob:
    """Rows for one key group; (origin, sequence) is the order in which the state takes them."""

    key_group: int
    origin: int
    sequence: int
    blob: bytes


def pack(frames: Iterable[pl.DataFrame], operator: Operator, task: Task) -> Iterator[Blob]:
    """Judge and combine a task's rows and hand them on by key group; the first task also wakes groups that are due."""
    edge = task.edge(operator.name)
    pending: list[pl.DataFrame] = []
    late: list[pl.DataFrame] = []
    # The share of a hot key that is dealt out is made by the step and no column of the rows.
    keys = KeySample(tuple(name for name in operator.key if not name.startswith("__")))
    taken = accepted = too_late = partly_late = dropped = sequence = 0
    for frame in frames:
        combined = operator.combine(frame, edge)
        keys.take(frame)
        taken += frame.height
        accepted += combined.accepted
        too_late += combined.late.height
        partly_late += combined.partly_late
        dropped += combined.dropped
        if operator.late_schema is not None:
            late.append(combined.late)
        pending.append(combined.partials)
        if sum(partials.height for partials in pending) > PENDING_ROWS:
            yield from _blobs(pending, operator, task, sequence)
            pending, sequence = [], sequence + 1
    yield from _blobs(pending, operator, task, sequence)
    if task.partition == 0:
        for group in task.record.wake.get(operator.name, ()):
            yield Blob(group, -1, 0, b"")
    task.report(
        f"step.{operator.name}",
        {
            "in": taken,
            "accepted": accepted,
            "late": too_late,
            "partly_late": partly_late,
            "dropped": dropped,
            "keys": keys.report(),
            "side": {"late": write_side_rows(task, operator.name, "late", late)},
        },
    )


def _blobs(pending: list[pl.DataFrame], operator: Operator, task: Task, sequence: int) -> Iterator[Blob]:
    filled = [partials for partials in pending if not partials.is_empty()]
    if not filled:
        return
    partials = pl.concat(filled)
    grouped = partials.with_columns(group_of_rows(partials, operator.key))
    for (group,), part in grouped.partition_by("key_group", as_dict=True, include_key=False).items():
        # Merged by key group, not all at once: with many keys a small hash table is several times faster.
        merged = part if len(filled) == 1 else operator.merge(part)
        yield Blob(int(group), task.partition, sequence, encode(merged))
