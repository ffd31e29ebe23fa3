"""What Headrace asks of a sink, and what a sink promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import polars as pl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Guarantee = Literal["exactly_once", "at_least_once"]


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Which batch a sink is given: the same identity comes again only with the same rows."""

    flow: str
    generation: int
    batch: int
    output: str
    """``main``, ``dead_letters``, or ``<step>.<side output>``."""
    id: str = ""
    """The flow's own id, made at the birth of its checkpoint: two checkpoints never share one."""
    epoch: int = 0
    """The lease under which the batch is written: a sink refuses one older than it has seen."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the ``out`` rows a sink was given."""

    out: int
    rows: int
    """Written now."""
    already_marked: int = 0
    """Written by an earlier attempt."""
    superseded: int = 0
    """Replaced by a later change of the same key in the same batch."""
    refused: int = 0
    """Refused for themselves; dead letters hold them."""
    letters: Mapping[str, int] = field(default_factory=dict)
    """Files of refused rows, with the number of rows of each."""
    marks: Mapping[int, int] = field(default_factory=dict)
    """The writers that have marked this batch, each with the batch."""


@runtime_checkable
class Sink(Protocol):
    """A place for results that is written from the driver; any class with these members is a sink."""

    @property
    def guarantee(self) -> Guarantee:
        """What the sink promises when a batch is written again after a crash."""

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        """Write a batch by running the frame exactly once, and leave a mark with its rows."""


@dataclass(frozen=True, slots=True)
class Writer:
    """One of the writers among which a sink's rows are dealt out."""

    flow: str
    """The flow's own id."""
    output: str
    number: int
    epoch: int

    @property
    def name(self) -> str:
        """The writer's name in the sink's system; the epoch is not part of it, so that a successor can fence.

        >>> Writer("spend-1f0c", "main", 0, epoch=3).name
        'headrace.spend-1f0c.main.0'
        """
        return f"headrace.{self.flow}.{self.output}.{self.number}"


@dataclass(frozen=True, slots=True)
class Share:
    """One writer's part of one batch."""

    writer: Writer
    generation: int
    batch: int
    last: int | None
    """The last batch of this generation that this writer marked, as the batch log knows it."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of the rows of a share: written + superseded + already marked + refused are all of them."""

    written: int
    superseded: int = 0
    already_marked: int = 0
    refused: pl.DataFrame | None = None
    """Rows the sink cannot take, with columns ``reason``, ``detail`` and ``raw`` (binary); they become dead letters."""


class Unreachable(Exception):
    """The sink's server does not answer now; the share is tried again, mark first, until it does."""


@runtime_checkable
class TaskSink(Protocol):
    """A place for results that tasks write to, each writer its share, connections kept in the worker."""

    @property
    def target(self) -> str:
        """What is written to, as in ``kafka topic 'alerts'``: the batch log knows the sink by it."""

    @property
    def place(self) -> str:
        """The target and its server's address, for people and without secrets."""

    @property
    def guarantee(self) -> Guarantee:
        """What the sink promises when a batch is written again after a crash."""

    @property
    def why(self) -> str:
        """One sentence on how the guarantee is kept, for ``explain``."""

    @property
    def writers(self) -> int | None:
        """How many writers there shall be; None for as many as the session has shuffle partitions."""

    @property
    def dealt_by(self) -> tuple[str, ...]:
        """The columns, flat ones too, whose values choose a row's writer; none for the whole row."""

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[Writer]) -> None:
        """On the driver before the first batch: reach the server, check that the columns fit, claim the epoch.

        Raises HeadraceError for what the author must mend, Unreachable when the server does not answer.
        """

    def deliver(self, rows: pl.DataFrame, share: Share) -> Delivered:
        """In a task: write the rows of a share with its mark in one transaction, unless they are marked already."""
