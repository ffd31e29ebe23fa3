"""Sinks: what Headrace asks of one, what it guarantees, and the marks that keep a batch from being written twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headrace.errors import DefinitionError, HeadraceError, check_choice
from headrace.event_time.record import MarkedBatch
from headrace.nodes import ResultVersions
from headrace.stability import stable

Guarantee = Literal["exactly_once", "at_least_once"]
ChangelogMode = Literal["log", "upsert", "append"]
"""What a sink does with a changelog: ``log`` writes every change as a row, ``upsert`` applies changes by key to a
table, ``append`` adds rows to a table and can retract none."""


@stable
@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """The identity of a batch: a batch that runs again has the same identity and the same rows.

    >>> BatchIdentity("spend", generation=0, batch=7, output="main").batch
    7
    """

    flow: str
    generation: int
    batch: int
    output: str
    """``main``, ``dead_letters``, or ``<step>.<side output>``."""
    id: str = ""
    """The flow's unique id, made with its checkpoint: two checkpoints never share one."""
    epoch: int = 0
    """The epoch of the driver that writes the batch; a sink refuses an older one than it has seen."""
    token: str = ""
    """Made when the batch was planned: in a copy of the checkpoint a batch of the same number has another one."""
    last: MarkedBatch | None = None
    """The last batch before this one that had rows for the sink, according to the log; None for a sink of tasks."""
    changelog: bool = False
    """Whether the rows are changes of a table, as their column ``change`` says; else it is a column as any other."""


@stable
@dataclass(frozen=True, slots=True)
class Written:
    """What became of the ``out`` rows that a sink was given.

    >>> Written(out=3, rows=2, superseded=1).rows
    2
    """

    out: int
    rows: int
    """Written now."""
    already_marked: int = 0
    """Written by an earlier attempt."""
    superseded: int = 0
    """Replaced by a later change of the same key in the same batch."""
    refused: int = 0
    """Refused by the sink; they become dead letters."""
    skipped: int = 0
    """Accepted by the server, which then did not write them, as a trigger or a rule of its own says."""
    letters: Mapping[str, int] = field(default_factory=dict)
    """Files of refused rows, with the number of rows in each."""
    marked: frozenset[int] = frozenset()
    """The writers that have marked this batch, of a sink of tasks."""


@stable
@runtime_checkable
class Sink(Protocol):
    """A sink that the driver writes to. Any class with these two members is a sink.

    >>> class Count:
    ...     guarantee = "at_least_once"
    ...     def write(self, frame, batch):
    ...         rows = frame.count()
    ...         return Written(out=rows, rows=rows)
    >>> isinstance(Count(), Sink)
    True
    """

    __slots__ = ()

    @property
    def guarantee(self) -> Guarantee:
        """What the sink guarantees when a batch is written again after a crash."""

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        """Write a batch by running the frame exactly once, and store a mark with its rows."""


class DriverSink(Sink):
    """A sink of Headrace that the driver writes to, with the defaults for what it need not declare."""

    __slots__ = ()

    @property
    def target(self) -> str:
        """What is written to; identifies the sink in the batch log."""
        return repr(self)

    @property
    def place(self) -> str:
        """The target, for people and without secrets."""
        return self.target

    @property
    def why(self) -> str | None:
        """One sentence on how the guarantee is kept, for ``explain``."""
        return None

    @property
    def changelog_mode(self) -> ChangelogMode:
        """What the sink does with changes."""
        return "log"

    def of_results(self, versions: ResultVersions | None) -> DriverSink:
        """The same sink for rows of which some replace others; None where each is a result of its own."""
        return self

    def check_columns(self, columns: StructType) -> None:
        """Fail if no target could take rows of these columns; asks no server."""

    def check_target(self, frame: DataFrame) -> None:
        """Before the first batch: fail if rows with the frame's columns cannot be written; changes nothing."""

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        """The mark that each writer has left; none at all where the sink keeps no marks."""
        return ()


@dataclass(frozen=True, slots=True, repr=False)
class UserSink(DriverSink):
    """A user's own sink class, which has only ``guarantee`` and ``write``."""

    sink: Sink

    @property
    def target(self) -> str:
        return type(self.sink).__qualname__

    @property
    def guarantee(self) -> Guarantee:
        return self.sink.guarantee

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        return self.sink.write(frame, batch)

    def __repr__(self) -> str:
        return repr(self.sink)


@dataclass(frozen=True, slots=True)
class WriterBatch:
    """One writer's part of a batch."""

    batch: BatchIdentity
    number: int
    """The writer's number, counted from 0."""
    last: MarkedBatch | None
    """The last batch of this generation that this writer marked, according to the log."""

    @property
    def writer(self) -> str:
        return writer_name(self.batch.id, self.batch.output, self.number)


def writer_name(flow_id: str, output: str, number: int) -> str:
    """A writer's name in the sink's system. The epoch is not part of it, so that a successor can fence.

    >>> writer_name("spend-1f0c", "main", 0)
    'headrace.spend-1f0c.main.0'
    """
    return f"headrace.{flow_id}.{output}.{number}"


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of the rows of a writer's batch: all counts and the refused rows add up to all."""

    written: int
    superseded: int = 0
    already_marked: int = 0
    refused: pl.DataFrame | None = None
    """Rows that the sink cannot take, with columns ``reason``, ``detail`` and ``raw``; they become dead letters."""
    skipped: int = 0


class Unreachable(Exception):
    """The sink's server does not answer now. The delivery is retried, starting with the mark, until it does."""


@runtime_checkable
class TaskSink(Protocol):
    """A sink that tasks write to: each task is one writer and keeps its connections in the worker."""

    @property
    def target(self) -> str:
        """What is written to, as in ``kafka topic 'alerts'``; identifies the sink in the batch log."""

    @property
    def place(self) -> str:
        """The target and its server's address, for people and without secrets."""

    @property
    def guarantee(self) -> Guarantee:
        """What the sink guarantees when a batch is written again after a crash."""

    @property
    def why(self) -> str:
        """One sentence on how the guarantee is kept, for ``explain``."""

    @property
    def changelog_mode(self) -> ChangelogMode:
        """What the sink does with changes."""

    @property
    def writers(self) -> int | None:
        """The number of writers; None for as many as the session has shuffle partitions."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns, flattened ones too, whose values choose a row's writer; none for the whole row."""

    def check_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        """Fail if no target could take rows of these columns; asks no server.

        ``columns`` are those to store: without the ``change`` of a changelog that the sink applies by key.
        """

    def check_target(self, columns: Mapping[str, pl.DataType]) -> None:
        """Ask the server whether the target as it is now takes these rows; changes nothing.

        Raises HeadraceError for what the user must correct, Unreachable when the server does not answer.
        """

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        """On the driver before the first batch: create and check the target, claim the epoch for the named writers."""

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        """On the driver: the mark that each writer has left; none at all where the sink keeps no marks."""

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        """In a task: write the rows and their mark in one transaction, unless they are marked already."""


AnySink = DriverSink | TaskSink


@dataclass(frozen=True, slots=True)
class Mark:
    """What a sink stores for a writer beside the rows: its epoch, and the last batch it has written."""

    epoch: int
    generation: int | None = None
    batch: int | None = None
    """None, as the generation, when a driver has claimed the writer and it has not written yet."""
    rows: int = 0
    token: str = ""
    skipped: int = 0


def check_epoch(epoch: int, stored: int, *, place: str, writer: str) -> None:
    """Refuse to write for a driver when one with a later epoch has claimed its writer."""
    if epoch < stored:
        raise HeadraceError(
            "FENCED",
            f"{place}: a newer driver (epoch {stored}) writes as {writer!r}, for this checkpoint or a copy of it; "
            f"this one (epoch {epoch}) writes nothing. Stop it, and go on with the checkpoint of the newer one.",
        )


def already_written(part: WriterBatch, stored: Mark | None, *, place: str) -> bool:
    """Whether the sink holds this part of the batch. Fails when its mark is not one that the log expects.

    This is the one rule of all sinks with marks (step 8 of the protocol): the mark names the record of this batch, and
    the rows are there; or it is the last one that the log knows, and they may be written; or nothing may be.
    """
    identity = part.batch
    if stored is not None:
        check_epoch(identity.epoch, stored.epoch, place=place, writer=part.writer)
        if stored.generation is not None and stored.generation > identity.generation:
            raise HeadraceError(
                "GENERATION_OLD",
                f"{place}: writer {part.writer!r} is at generation {stored.generation}, this flow at "
                f"{identity.generation}. It has since been restored elsewhere; start from the newer checkpoint.",
            )
    found = None
    if stored is not None and stored.batch is not None and stored.generation == identity.generation:
        found = MarkedBatch(stored.batch, stored.token)
    if found == MarkedBatch(identity.batch, identity.token):
        return True
    if found == part.last:
        return False
    if found is not None and (part.last is None or found.number >= part.last.number):
        raise forked(place, f"writer {part.writer!r} has written batch {found.number}")
    raise HeadraceError(
        "MARK_LOST",
        f"{place}: the last mark of writer {part.writer!r} should be {_shown(part.last)} or {identity.batch}, "
        f"found {_shown(found)}. Whether batch {identity.batch} was written is unknown. Check which rows are "
        "there, then continue from a new checkpoint.",
    )


def forked(place: str, what: str) -> HeadraceError:
    """A sink holds what the log does not know, though it has this checkpoint's id."""
    return HeadraceError(
        "CHECKPOINT_FORKED",
        f"{place}: {what}, which the log of this checkpoint does not know. So this is a copy, or was put back, and "
        "another copy has gone on. Nothing was written. Go on with that one, or start with a new checkpoint, which "
        "writes everything again.",
    )


def _shown(batch: MarkedBatch | None) -> str:
    return "none" if batch is None else f"batch {batch.number}"


def check_delivery(guarantee: str, writers: int | None) -> None:
    """Check the options that say how rows are delivered."""
    check_choice(Guarantee, guarantee=guarantee)
    check_writers(writers)


def check_writers(writers: int | None) -> None:
    """Check the number of writers of a sink."""
    if writers is not None and writers < 1:
        raise DefinitionError("WRITERS_INVALID", f"writers={writers} must be at least 1.")
