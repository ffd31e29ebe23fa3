"""What the wheel asks of an operator: vectorised functions of whole frames that know nothing of Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Protocol, runtime_checkable

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.reports import WaitingRows
from headrace.state.order_ranges import OrderRanges


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
    """What a batch did in a slot: the state rows that changed, and the rows to emit."""

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
    """Per-step counters for the history, summed over the slots."""
    shared: tuple[pl.DataFrame, pl.DataFrame] | None = None
    """Changed and removed state rows that belong to no key and that all slots see, such as rules."""


def together(parts: Iterable[Applied]) -> Applied:
    """What was done for several ranges of keys, as one."""
    given = list(parts)
    if len(given) == 1:
        return given[0]
    late = [each.late for each in given if each.late is not None]
    failed = [each.failed for each in given if each.failed is not None]
    waiting = [each.waiting for each in given if each.waiting is not None]
    side: dict[str, list[pl.DataFrame]] = {}
    counters: Counter[str] = Counter()
    for each in given:
        counters.update(each.counters)
        for name, rows in each.side.items():
            side.setdefault(name, []).append(rows)
    return Applied(
        pl.concat([each.upserts for each in given]),
        pl.concat([each.removed for each in given]),
        pl.concat([each.output for each in given]),
        pl.concat(late) if late else None,
        sum(each.dropped for each in given),
        sum(each.dropped_second for each in given),
        {name: pl.concat(rows) for name, rows in side.items()},
        pl.concat(failed) if failed else None,
        WaitingRows(*(sum(counts) for counts in zip(*map(astuple, waiting), strict=True))) if waiting else None,
        counters,
    )


@dataclass(frozen=True, slots=True)
class Due:
    """Which rows of the state concern a batch, and when without rows of their key: expressions over state rows."""

    event: pl.Expr | None = None
    """By event time."""
    clock: pl.Expr | None = None
    dead_at: pl.Expr | None = None
    """From which event time on a row no longer counts, without being removed."""
    written_once: bool = False
    """Whether a row that dies by itself is not changed or removed before, as one that waits: it hides no other."""
    reach: int = 0
    """How long after its due time a row may still be needed."""
    following: Callable[[int], int] | None = None
    """The next moment after a time at which rows within reach are needed; without it that is when they are due."""
    order: pl.Expr | None = None
    """By what rows of a key lie in order, for a step that looks for ranges of them: a number that no later version of
    a row changes, made of the identity where rows are removed."""
    ranges: Callable[[Sequence[pl.DataFrame]], OrderRanges] | None = None
    """What of the order concerns a batch: its rows, one frame for each input, and what is due in it."""


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

    def due(self, bounds: TimeBounds) -> Due:
        """When the rows that a batch with these bounds stores fire or are forgotten."""


class Operator(Keeper, Protocol):
    """The runtime form of a step with one input."""

    def apply(self, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> Applied:
        """State side: take the partial results in, fire what is due, forget what is over.

        ``state`` has at least the rows of all keys that the partial results have, and of those with a row that is due.
        """


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
