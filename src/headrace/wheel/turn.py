"""One turn of the wheel: a slot takes a batch's blobs against its state and emits rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import END
from headrace.key_hash import hashes_of
from headrace.nodes import NodeId
from headrace.reports import SlotSummary, StateReport
from headrace.state.group_range import GroupRange, Hashes, distinct, groups_of
from headrace.state.segment import DEAD_AT, DUE, DUE_CLOCK, HASH, ORDER
from headrace.state.slot_state import SlotState, StateRows
from headrace.wheel.codec import decode
from headrace.wheel.operator import AnyOperator, Applied, Due, Intake, Joined, together
from headrace.wheel.pack import Blob
from headrace.wheel.side_rows import DEAD_LETTERS, failed_letters, write_side_rows
from headrace.wheel.task import Task

NEVER = Due()
PASS_ROWS = 100_000
"""About this many rows and keys go through the operator together."""


def turn(operator: AnyOperator, task: Task, slot: int, blobs: Iterable[Blob]) -> Iterator[pl.DataFrame]:
    """Apply a batch to one slot. The batch is in the state, and reported, when the last result rows have been taken."""
    name, bounds, batch = operator.name, task.time_bounds(operator.name), task.record.batch
    due = operator.due(bounds)
    known, rows = task.slot(name, slot), StateRows(operator.state_schema, operator.identity, due.written_once)
    state = SlotState(task.segment_files(name, slot), rows, known.segments, task.groups(slot), bounds.before)
    of_first = task.slot(name, 0).shared
    shared = SlotState(task.segment_files(name, 0), rows, of_first, task.all_groups, bounds.before)
    if name in task.record.rewritten:
        state.rewrite(lambda rows: _hashed(rows, operator.key, due), batch)
        if slot == 0:
            shared.rewrite(lambda rows: _hashed(rows, (), due), batch)
    parts = []
    for part in _applied(operator, _Kept(state, shared, task.groups(slot), due), bounds, blobs):
        if not part.output.is_empty():
            yield part.output
        parts.append(replace(part, output=part.output.clear()))
    applied = together(parts)
    gone = applied.removed
    if gone.height:
        gone = _hashed(gone, operator.key, Due(order=due.order))
    state.write(_hashed(applied.upserts, operator.key, due), gone, batch, bounds.fire)
    if applied.shared is not None and slot == 0:
        changed, removed = applied.shared
        shared.write(_hashed(changed, (), due), _hashed(removed, (), NEVER), batch, bounds.fire)
    waiting = known.waiting
    if applied.waiting is not None:
        waiting += applied.waiting.after - applied.waiting.before
    summary = SlotSummary(
        state.segments,
        shared.segments if slot == 0 else (),
        _least(_next_due(each, due, bounds) for each in (state, shared)),
        _least(each.next_due(DUE_CLOCK, bounds.clock) for each in (state, shared)),
        waiting,
    )
    task.close_others(name, slot, summary)
    task.report(NodeId("state", name), _report(operator, task, applied, summary), part=slot)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The state that a slot begins a batch with, and when its rows concern the batch."""

    state: SlotState
    shared: SlotState
    groups: GroupRange
    due: Due

    def concerned(
        self, frames: Sequence[pl.DataFrame], hashes: Sequence[Hashes], groups: GroupRange, bounds: TimeBounds
    ) -> pl.DataFrame:
        """The rows that concern these frames and these keys; all of the key groups at the end of time."""
        if bounds.fire >= END:
            return self.state.all(groups)
        ranges = None if self.due.ranges is None else self.due.ranges(frames)
        return self.state.find(np.concatenate(hashes), ranges)


def _applied(operator: AnyOperator, kept: _Kept, bounds: TimeBounds, blobs: Iterable[Blob]) -> Iterator[Applied]:
    """What the operator makes of the rows of a batch and of what is due, by ranges of key groups."""
    ordered = sorted(blobs, key=lambda blob: (blob.origin, blob.sequence))
    first = _Brought.of(operator, [blob.blob for blob in ordered if blob.blob and not blob.second])
    due = _due_hashes(kept.state, kept.due, bounds)
    if not isinstance(operator, Joined):
        for groups, (rows,), each in _passes(kept.groups, (first,), due):
            yield operator.apply(kept.concerned((rows,), each, groups, bounds), rows, bounds)
        return
    second = _Brought.of(operator.second, [blob.blob for blob in ordered if blob.second])
    if operator.second.broadcast:
        concerned = pl.concat([kept.concerned((), (first.hashes, due), kept.groups, bounds), kept.shared.all()])
        yield operator.apply_both(concerned, first.merged(), second.merged(), bounds)
        return
    for groups, (left, right), each in _passes(kept.groups, (first, second), due):
        yield operator.apply_both(kept.concerned((left, right), each, groups, bounds), left, right, bounds)


@dataclass(frozen=True, slots=True)
class _Brought:
    """What tasks have packed for one input, with the hashes of its keys."""

    intake: Intake
    partials: pl.DataFrame
    hashes: Hashes

    @classmethod
    def of(cls, intake: Intake, blobs: Sequence[bytes]) -> _Brought:
        partials = decode(blobs) if blobs else pl.DataFrame(schema=dict(intake.partial_schema))
        return cls(intake, partials, hashes_of(partials, intake.key))

    def merged(self, places: npt.NDArray[np.int64] | None = None) -> pl.DataFrame:
        """The rows at these places, or all, merged: into a small hash table it is several times faster."""
        return self.intake.merge(self.partials if places is None else self.partials[places])


def _report(operator: AnyOperator, task: Task, applied: Applied, summary: SlotSummary) -> StateReport:
    """What the slot tells the driver; side rows are written."""
    late, failed, side = applied.late, applied.failed, dict(applied.side)
    if late is not None and "late" in operator.side_schemas:
        side["late"] = late
    if failed is not None:
        side[DEAD_LETTERS] = failed_letters(failed, step=operator.name, task=task)
    return StateReport(
        summary,
        late=0 if late is None else late.height,
        dropped=applied.dropped,
        dropped_second={operator.second.name: applied.dropped_second} if isinstance(operator, Joined) else {},
        failed=0 if failed is None else int((~failed["is_timer"]).sum()),
        waiting=applied.waiting,
        counters=dict(applied.counters),
        side={name: write_side_rows(task, operator.name, name, [rows]) for name, rows in side.items()},
    )


def _passes(
    slot: GroupRange, brought: Sequence[_Brought], due: Hashes
) -> Iterator[tuple[GroupRange, list[pl.DataFrame], list[Hashes]]]:
    """The key groups of a slot in ranges small enough that what they need stays in the processor's cache.

    Of each range the rows of every input, and the hashes of the keys that concern it.
    """
    ranges = slot.divided(-(-(len(due) + sum(len(each.hashes) for each in brought)) // PASS_ROWS))
    if len(ranges) == 1:
        yield slot, [each.merged() for each in brought], [*(each.hashes for each in brought), due]
        return
    # By key group, not by hash: numpy sorts short numbers by counting, and what it gathers lies closer together.
    of_groups = [groups_of(each.hashes, slot.of).astype(np.uint16) for each in brought]
    order = [np.argsort(groups, kind="stable") for groups in of_groups]
    of_groups = [groups[places] for groups, places in zip(of_groups, order, strict=True)]
    for groups in ranges:
        within = [places[_slice(of, groups)] for of, places in zip(of_groups, order, strict=True)]
        parts = [each.merged(places) for each, places in zip(brought, within, strict=True)]
        hashes = [each.hashes[places] for each, places in zip(brought, within, strict=True)]
        yield groups, parts, [*hashes, due[groups.slice_of(due)]]


def _slice(sorted_groups: npt.NDArray[np.uint16], groups: GroupRange) -> slice:
    first, end = np.searchsorted(sorted_groups, [groups.first, groups.end])
    return slice(int(first), int(end))


def _due_hashes(state: SlotState, due: Due, bounds: TimeBounds) -> Hashes:
    """The keys, in order, that concern a batch because something of them is due."""
    needed = due.following is None or due.following(bounds.before) <= bounds.fire
    since = bounds.before - due.reach if needed else bounds.fire
    by_event = state.due(DUE, since, bounds.fire)
    by_clock = state.due(DUE_CLOCK, bounds.clock_before, bounds.clock)
    return distinct(np.concatenate([by_event, by_clock])) if len(by_clock) else by_event


def _hashed(rows: pl.DataFrame, key: Sequence[str], due: Due) -> pl.DataFrame:
    """Changed rows with their hashes and due times; of removed rows, which have only an identity, the hashes."""
    times = {DUE: due.event, DUE_CLOCK: due.clock, DEAD_AT: due.dead_at, ORDER: due.order}
    given = [time.cast(pl.Int64).alias(name) for name, time in times.items() if time is not None]
    return rows.with_columns(pl.Series(HASH, hashes_of(rows, key), pl.UInt64), *given)


def _least(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)


def _next_due(state: SlotState, due: Due, bounds: TimeBounds) -> int | None:
    found = state.next_due(DUE, bounds.fire - due.reach)
    return found if found is None or due.following is None else due.following(max(found - 1, bounds.fire))
