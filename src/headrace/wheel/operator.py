"""What the wheel asks of an operator: vectorised functions of whole frames that know nothing of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.reports import WaitingRows


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
    failed: pl.DataFrame | None = None
    """Rows that the step cannot use: ``reason``, ``detail`` and the ``row`` as JSON."""


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
    dropped_second: int = 0
    """The same of the second input's rows."""
    side: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Rows of the other side outputs, by their names."""
    failed: pl.DataFrame | None = None
    """Rows and timers for which the user's code failed: ``reason``, ``detail``, the ``row`` as JSON, ``is_timer``."""
    waiting: WaitingRows | None = None
    """For a step in which rows wait: how many did and do, and how many were handled."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Per-step counters for the history, summed over the key groups."""


@dataclass(frozen=True, slots=True)
class Due:
    """When a key group must be called though no row comes: by event time, by the clock, or not at all."""

    event: int | None = None
    clock: int | None = None


class Intake(Protocol):
    """How one input of a step comes to the key groups."""

    @property
    def name(self) -> str:
        """The step's name; for a second input what it is to the step."""

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, by which rows are spread over key groups."""

    @property
    def partial_schema(self) -> Mapping[str, pl.DataType]:
        """Columns of the partial results that travel."""

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Map side: judge lateness and pre-combine the rows of one frame."""

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Partial results of several frames into one for each identity."""


class Uncombined:
    """An input whose rows travel one by one, so that there is nothing to merge."""

    __slots__ = ()

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """The rows as they are, in the order of arrival."""
        return partials


class Keeper(Intake, Protocol):
    """What every step's state is to the wheel, whatever the number of its inputs."""

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify one row of state."""

    @property
    def state_schema(self) -> Mapping[str, pl.DataType]:
        """Columns of the state."""

    @property
    def output_schema(self) -> Mapping[str, pl.DataType]:
        """Columns of the rows that are emitted."""

    @property
    def output_time(self) -> str:
        """The column of the output that holds its event time: a timestamp, or a window."""

    @property
    def side_schemas(self) -> Mapping[str, Mapping[str, pl.DataType]]:
        """Columns of every side output; ``late`` is one of them unless late rows are only counted."""

    def due(self, state: pl.DataFrame, bounds: TimeBounds) -> Due:
        """The earliest time after ``bounds`` at which something in the state fires or is forgotten."""


class Operator(Keeper, Protocol):
    """The runtime form of a step with one input."""

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """State side: take the partial results in, fire what is due, forget what is over."""


class Second(Intake, Protocol):
    """The second input of a step."""

    @property
    def broadcast(self) -> bool:
        """Whether every key group gets all its rows, as rules do."""

    @property
    def late_output(self) -> str:
        """The side output for late rows of this input."""


@runtime_checkable
class Joined(Keeper, Protocol):
    """The runtime form of a step with two inputs."""

    @property
    def second(self) -> Second:
        """The second input."""

    def apply_both(
        self, state: pl.DataFrame, partials: pl.DataFrame, second: pl.DataFrame, bounds: TimeBounds
    ) -> Applied:
        """State side, as ``apply``, with what both inputs brought."""


AnyOperator = Operator | Joined
