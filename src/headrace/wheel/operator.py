"""What the wheel asks of an operator: vectorised functions of whole frames that know nothing of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from headrace.event_time.record import Edge


@dataclass(frozen=True, slots=True)
class Combined:
    """Rows of one frame after the map side: partial results to travel, late rows to leave here."""

    partials: pl.DataFrame
    late: pl.DataFrame
    """Late rows, whole; counted always, kept when the step keeps them."""
    accepted: int
    partly_late: int = 0
    """Accepted rows that came too late for some of their windows."""
    dropped: int = 0
    """Rows that the step's own rule removed here, as repeats."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A key group after a batch: its new state, what changed of it, and the rows to emit."""

    state: pl.DataFrame
    upserts: pl.DataFrame
    removed: pl.DataFrame
    """Identities that are gone from the state."""
    output: pl.DataFrame
    late: pl.DataFrame | None = None
    """Late rows that only the state could tell; they were accepted on the map side."""
    dropped: int = 0
    """Accepted rows that the step's own rule removed, as repeats."""


@dataclass(frozen=True, slots=True)
class Due:
    """When a key group must be called though no row comes: by event time, by the clock, or not at all."""

    event: int | None = None
    clock: int | None = None


class Operator(Protocol):
    """The runtime form of a step."""

    @property
    def name(self) -> str:
        """The step's name."""

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, by which rows are spread over key groups."""

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify one row of state."""

    @property
    def state_schema(self) -> Mapping[str, pl.DataType]:
        """Columns of the state."""

    @property
    def partial_schema(self) -> Mapping[str, pl.DataType]:
        """Columns of the partial results that travel."""

    @property
    def output_schema(self) -> Mapping[str, pl.DataType]:
        """Columns of the rows that are emitted."""

    @property
    def output_time(self) -> str:
        """The column of the output that holds its event time: a timestamp, or a window."""

    @property
    def late_schema(self) -> Mapping[str, pl.DataType] | None:
        """Columns of the ``late`` output, or None when late rows are only counted."""

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Map side: judge lateness and pre-combine the rows of one frame."""

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Partial results of several frames into one for each identity."""

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, edge: Edge) -> Applied:
        """State side: take the partial results in, fire what is due, forget what is over."""

    def due(self, state: pl.DataFrame, edge: Edge) -> Due:
        """The earliest time behind ``edge`` at which something in the state fires or is forgotten."""
