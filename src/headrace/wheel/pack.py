"""Map side of the wheel: rows into few blobs, one for each key group that has something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from headrace.wheel.codec import encode
from headrace.wheel.dead_letters import DEAD_LETTERS, failed_letters
from headrace.wheel.hot_keys import KeySample
from headrace.wheel.key_groups import group_ids, group_of_rows
from headrace.wheel.operator import AnyOperator, Intake, Joined
from headrace.wheel.side_rows import write_side_rows
from headrace.wheel.task import Task

PENDING_ROWS = 4_000_000
BLOB_SCHEMA = "key_group INT, origin INT, sequence INT, blob BINARY, second BOOLEAN"


@dataclass(frozen=True, slots=True)
class Blob:
    """Rows for one key group; (origin, sequence) is the order in which the state takes them."""

    key_group: int
    origin: int
    sequence: int
    blob: bytes
    second: bool = False
    """Whether the rows come from the second input of a step."""


def pack(frames: Iterable[pl.DataFrame], operator: AnyOperator, task: Task) -> Iterator[Blob]:
    """Hand a task's rows on by key group; the first task also wakes groups that are due."""
    yield from _pack(frames, operator, operator, task, node=f"step.{operator.name}")
    yield from _wakes(operator, task)


def pack_second(frames: Iterable[pl.DataFrame], operator: Joined, task: Task) -> Iterator[Blob]:
    """Hand on a task's rows of a step's second input; those of a broadcast go to every key group."""
    second = operator.second
    for blob in _pack(frames, second, operator, task, node=f"step.{operator.name}.{second.name}"):
        for group in group_ids() if second.broadcast else (blob.key_group,):
            yield Blob(group, blob.origin, blob.sequence, blob.blob, second=True)
    yield from _wakes(operator, task)


def _wakes(operator: AnyOperator, task: Task) -> Iterator[Blob]:
    """Spark leaves out an input that brings nothing, so either may hold the first task; woken twice is no harm."""
    if task.partition == 0:
        for group in task.record.wake.get(operator.name, ()):
            yield Blob(group, -1, 0, b"")


def _pack(
    frames: Iterable[pl.DataFrame], intake: Intake, operator: AnyOperator, task: Task, *, node: str
) -> Iterator[Blob]:
    """Judge and combine rows, and tell what became of them."""
    edge = task.edge(operator.name)
    pending: list[pl.DataFrame] = []
    late: list[pl.DataFrame] = []
    failed: list[pl.DataFrame] = []
    # The share of a hot key that is dealt out is made by the step and no column of the rows.
    keys = KeySample(tuple(name for name in intake.key if not name.startswith("__")))
    taken = accepted = too_late = partly_late = dropped = sequence = 0
    for frame in frames:
        combined = intake.combine(frame, edge)
        keys.take(frame)
        taken += frame.height
        accepted += combined.accepted
        too_late += combined.late.height
        partly_late += combined.partly_late
        dropped += combined.dropped
        if "late" in operator.side_schemas:
            late.append(combined.late)
        if combined.failed is not None:
            failed.append(failed_letters(combined.failed, step=operator.name, task=task))
        pending.append(combined.partials)
        if sum(partials.height for partials in pending) > PENDING_ROWS:
            yield from _blobs(pending, intake, task, sequence)
            pending, sequence = [], sequence + 1
    yield from _blobs(pending, intake, task, sequence)
    task.report(
        node,
        {
            "in": taken,
            "accepted": accepted,
            "late": too_late,
            "partly_late": partly_late,
            "dropped": dropped,
            "failed": sum(letters.height for letters in failed),
            "keys": keys.report(),
            "side": {
                "late": write_side_rows(task, operator.name, "late", late),
                DEAD_LETTERS: write_side_rows(task, operator.name, DEAD_LETTERS, failed, part=intake.name),
            },
        },
    )


def _blobs(pending: list[pl.DataFrame], intake: Intake, task: Task, sequence: int) -> Iterator[Blob]:
    filled = [partials for partials in pending if not partials.is_empty()]
    if not filled:
        return
    partials = pl.concat(filled)
    grouped = partials.with_columns(group_of_rows(partials, intake.key))
    for (group,), part in grouped.partition_by("key_group", as_dict=True, include_key=False).items():
        # Merged by key group, not all at once: with many keys a small hash table is several times faster.
        merged = part if len(filled) == 1 else intake.merge(part)
        yield Blob(int(group), task.partition, sequence, encode(merged))
