"""Map side of the wheel: rows into few blobs, one for each slot that has something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import polars as pl

from headrace.key_hash import hashes_of
from headrace.nodes import NodeId
from headrace.reports import KeyCounts, StepReport
from headrace.wheel.codec import encode
from headrace.wheel.operator import AnyOperator, Intake, Joined
from headrace.wheel.side_rows import DEAD_LETTERS, failed_letters, write_side_rows
from headrace.wheel.task import Task

SAMPLE_ROWS = 2_000
NAMED = 5


class KeySample:
    """Counts the keys of a task's rows in a sample.

    >>> sample = KeySample(("account",))
    >>> sample.take(pl.DataFrame({"account": ["a", "b", "a", "a"]}))
    >>> sample.report()
    KeyCounts(rows=4, top=((('a',), 3), (('b',), 1)))
    """

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key = key
        self._rows = 0
        self._counts: list[pl.DataFrame] = []

    def take(self, frame: pl.DataFrame) -> None:
        """Sample the rows of a frame; what is counted stands for all of them."""
        if not self._key or frame.is_empty():
            return
        # Polars casts neither bytes nor durations to text by itself.
        keys = frame.select(self._key).with_columns(
            pl.selectors.binary().bin.encode("hex"), pl.selectors.duration().dt.to_string("polars")
        )
        keys = keys.cast(pl.String)
        # A sample at equal distances would see only some keys of rows that come in turns.
        sampled = keys if keys.height <= SAMPLE_ROWS else keys.sample(SAMPLE_ROWS, seed=self._rows)
        weight = frame.height / sampled.height
        self._rows += frame.height
        self._counts.append(sampled.group_by(self._key).agg((pl.len() * weight).alias("__rows")))

    def report(self) -> KeyCounts:
        """The number of rows, and the keys that most of them have."""
        if not self._counts:
            return KeyCounts()
        totals = pl.concat(self._counts).group_by(self._key).agg(pl.col("__rows").sum())
        top = totals.sort("__rows", *self._key, descending=[True, *(False for _ in self._key)]).head(NAMED)
        return KeyCounts(self._rows, tuple((row[:-1], round(row[-1])) for row in top.rows()))


PENDING_ROWS = 4_000_000
MERGED_TOGETHER = 100_000
_SLOT, _GROUP = "__slot", "__group"
BLOB_SCHEMA = "slot INT, origin INT, sequence INT, blob BINARY, second BOOLEAN, step INT"


@dataclass(frozen=True, slots=True)
class Blob:
    """Rows for one slot; (origin, sequence) is the order in which the state takes them."""

    slot: int
    origin: int
    sequence: int
    blob: bytes
    second: bool = False
    """Whether the rows come from the second input of a step."""
    step: int = 0
    """Which of the steps that are packed together they are for."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a step, as tasks pack it."""

    operator: AnyOperator
    second: bool = False
    condition: pl.Expr | None = None
    """Which rows it takes; None for all."""
    step: int = 0


def pack(frames: Iterable[pl.DataFrame], inputs: Sequence[Input], task: Task) -> Iterator[Blob]:
    """Hand a task's rows on to every input by slot; the first task also tells each slot's task which slots it has."""
    packings = [(each.condition, Packing(each, task)) for each in inputs]
    for rows in frames:
        for condition, packing in packings:
            yield from packing.take(rows if condition is None else rows.filter(condition))
    for _, packing in packings:
        yield from packing.finish()
    if task.partition == 0:
        # Spark leaves out an input that brings nothing, so either may hold the first task; twice is no harm.
        for step in {each.step for each in inputs}:
            for slot in range(task.record.slots):
                yield Blob(slot, -1, 0, b"", step=step)


class Packing:
    """Splits off late rows of an input in one task, combines the others, and reports what became of them."""

    def __init__(self, given: Input, task: Task) -> None:
        second = cast(Joined, given.operator).second if given.second else None
        self._given = given
        self._operator = given.operator
        self._intake: Intake = given.operator if second is None else second
        self._late_output = "late" if second is None else second.late_output
        self._to_every_slot = second is not None and second.broadcast
        self._task = task
        self._bounds = task.time_bounds(given.operator.name)
        self._pending: list[pl.DataFrame] = []
        self._pending_rows = 0
        """The rows of which the pending partial results were made."""
        self._late: list[pl.DataFrame] = []
        self._failed: list[pl.DataFrame] = []
        # A step that spreads hot keys over tasks adds a column to the key that rows do not have.
        self._keys = KeySample(tuple(name for name in self._intake.key if not name.startswith("__")))
        self._in = self._accepted = self._late_rows = self._partly_late = self._dropped = 0
        self._sequence = 0

    def take(self, rows: pl.DataFrame) -> Iterator[Blob]:
        """Some rows; blobs only when very many wait."""
        if rows.is_empty():
            return
        combined = self._intake.combine(rows, self._bounds)
        self._keys.take(rows)
        self._in += rows.height
        self._accepted += combined.accepted
        self._late_rows += combined.late.height
        self._partly_late += combined.partly_late
        self._dropped += combined.dropped
        if self._late_output in self._operator.side_schemas:
            self._late.append(combined.late)
        if combined.failed is not None:
            letters = failed_letters(combined.failed, step=self._operator.name, task=self._task)
            self._failed.append(letters)
        self._pending.append(combined.partials)
        self._pending_rows += combined.accepted
        if sum(partials.height for partials in self._pending) > PENDING_ROWS:
            yield from self._blobs()

    def finish(self) -> Iterator[Blob]:
        """The blobs of all that waits, and the report."""
        yield from self._blobs()
        task, step = self._task, self._operator.name
        side = {
            self._late_output: write_side_rows(task, step, self._late_output, self._late),
            DEAD_LETTERS: write_side_rows(task, step, DEAD_LETTERS, self._failed),
        }
        task.report(
            NodeId("step", step, self._intake.name if self._given.second else ""),
            StepReport(
                in_=self._in,
                accepted=self._accepted,
                late=self._late_rows,
                partly_late=self._partly_late,
                dropped=self._dropped,
                failed=sum(letters.height for letters in self._failed),
                keys=self._keys.report(),
                side=side,
            ),
        )

    def _blobs(self) -> Iterator[Blob]:
        filled = [partials for partials in self._pending if not partials.is_empty()]
        if filled:
            partials = pl.concat(filled)
            slots, groups = self._task.slots_of(hashes_of(partials, self._intake.key))
            # Merged by key group where there are many rows: a small hash table is several times faster.
            # Where combining has hardly made frames smaller, merging them would not either; the state merges anyway.
            merges = len(filled) > 1 and 2 * partials.height < self._pending_rows
            by = groups if merges and partials.height > MERGED_TOGETHER else slots
            grouped = partials.with_columns(slots.alias(_SLOT), by.alias(_GROUP))
            merged: dict[int, list[pl.DataFrame]] = {}
            for (slot, _), part in grouped.partition_by(_SLOT, _GROUP, as_dict=True, include_key=False).items():
                merged.setdefault(int(slot), []).append(self._intake.merge(part) if merges else part)
            for slot, parts in merged.items():
                content = encode(pl.concat(parts))
                for each in range(self._task.record.slots) if self._to_every_slot else (slot,):
                    yield Blob(
                        each, self._task.partition, self._sequence, content, self._given.second, self._given.step
                    )
        self._pending.clear()
        self._pending_rows = 0
        self._sequence += 1
