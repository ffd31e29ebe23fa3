"""Steps without state: rows pass through a task that widens, drops or refuses them and keeps nothing of the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import polars as pl

from headrace.nodes import NodeId
from headrace.reports import StepReport
from headrace.wheel.side_rows import DEAD_LETTERS, failed_letters, write_side_rows
from headrace.wheel.task import Task


@dataclass(frozen=True, slots=True)
class Passed:
    """What became of some of a task's rows."""

    rows: pl.DataFrame
    accepted: int
    """How many of the rows that came in account for ``rows``."""
    failed: pl.DataFrame | None = None
    """Rows that the step cannot use: ``reason``, ``detail`` and the ``row`` as JSON."""
    dropped: int = 0
    """Rows that the step's own rule removed."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Per-step counters for the history, summed over all tasks."""


@runtime_checkable
class Stateless(Protocol):
    """The runtime form of a step without state: it has no time bounds; the step after it has those of the step before.

    The column that carries event time must pass unchanged. Every row that comes in is accepted, failed or dropped.
    """

    @property
    def name(self) -> str:
        """The step's name."""

    @property
    def gathered_by(self) -> tuple[str, ...]:
        """Columns whose equal values one task must see together; none leaves rows in the tasks where they are."""

    @property
    def output_schema(self) -> Mapping[str, pl.DataType]:
        """Columns of the rows that are handed on."""

    def passed(self, frames: Iterable[pl.DataFrame], task: Task) -> Iterator[Passed]:
        """A task's rows, in pieces of any size."""

    def close(self) -> None:
        """Let go of what this process keeps for the step between batches."""


def pass_rows(frames: Iterable[pl.DataFrame], operator: Stateless, task: Task) -> Iterator[pl.DataFrame]:
    """Hand on what a step makes of a task's rows, and tell at the end what became of them."""
    taken = accepted = dropped = 0
    failed: list[pl.DataFrame] = []
    counters: Counter[str] = Counter()

    def counted() -> Iterator[pl.DataFrame]:
        nonlocal taken
        for frame in frames:
            taken += frame.height
            yield frame

    for piece in operator.passed(counted(), task):
        accepted += piece.accepted
        dropped += piece.dropped
        counters.update(piece.counters)
        if piece.failed is not None and not piece.failed.is_empty():
            failed.append(failed_letters(piece.failed, step=operator.name, task=task))
        if not piece.rows.is_empty():
            yield piece.rows
    task.report(
        NodeId("step", operator.name),
        StepReport(
            in_=taken,
            accepted=accepted,
            dropped=dropped,
            failed=sum(letters.height for letters in failed),
            counters=dict(counters),
            side={DEAD_LETTERS: write_side_rows(task, operator.name, DEAD_LETTERS, failed)},
        ),
    )
