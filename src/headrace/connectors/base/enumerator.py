"""Enumerators: what finds new rows of a source on the driver, and divides them among tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

from pyspark.sql import DataFrame

SOURCES = "sources"
"""The folder of a flow for what enumerators have to remember."""


class NotYet(Exception):
    """Whether there are rows will be known soon: ask again, unless the flow stops."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Up to where a batch reads a source."""

    until: Any
    unread: Mapping[str, int] = field(default_factory=dict)
    """How many rows wait in each partition after those."""
    partitions: tuple[str, ...] = ()
    """The partitions that the source has by now."""


class Enumerator(Protocol):
    """Finds, on the driver, what is new in a source. Positions are JSON values.

    ``Unreachable`` means that a server is away, ``NotYet`` that the answer is still to come: ask again.
    """

    @property
    def place(self) -> str:
        """The source's server or folder, as people call it."""

    def initial(self) -> Any:
        """Where a new flow begins."""

    def stop_at_newest(self) -> None:
        """Plan no further than what is there now."""

    def plan(self, since: Any, *, most: int | None) -> Planned:
        """Up to where the next batch reads, at most ``most`` rows."""


@runtime_checkable
class SplitEnumerator(Enumerator, Protocol):
    """An enumerator of a source that tasks read themselves."""

    def splits(self, since: Any, until: Any, *, tasks: int) -> Sequence[Any]:
        """What each task reads, as JSON values."""


@runtime_checkable
class FrameEnumerator(Enumerator, Protocol):
    """An enumerator of a source that Spark reads."""

    def frame(self, since: Any, until: Any) -> DataFrame:
        """The rows between two positions."""

    def was_away(self, failure: BaseException) -> bool:
        """Whether a job may have failed because its rows could not be read; ``Unreachable`` while that is so."""


@runtime_checkable
class StoringEnumerator(Enumerator, Protocol):
    """An enumerator that keeps files of its own in the checkpoint, which its positions name."""

    def check(self, since: Any) -> None:
        """Fail when what a position names is not there."""


@runtime_checkable
class OpenEnumerator(Enumerator, Protocol):
    """An enumerator that keeps something open while its flow runs, through which rows come at any time."""

    @property
    def calls(self) -> bool:
        """Whether it has something to say, so that the next look need not wait."""

    def conclude(self, until: Any) -> None:
        """The batch that read up to here is done."""

    def close(self) -> None:
        """Close it; the next call opens it again."""


@dataclass(frozen=True, slots=True)
class BoundedEnumerator:
    """A table in place of a source: all of it is read in one batch."""

    source: str
    rows: DataFrame

    @property
    def place(self) -> str:
        return f"the table in place of {self.source!r}"

    def initial(self) -> bool:
        return False

    def stop_at_newest(self) -> None:
        """A table ends."""

    def plan(self, since: bool, *, most: int | None) -> Planned:
        return Planned(True)

    def frame(self, since: bool, until: bool) -> DataFrame:
        return self.rows

    def was_away(self, failure: BaseException) -> bool:
        return False


def divided(weights: Sequence[int], tasks: int) -> list[slice]:
    """Runs of neighbours, one for each task, of about equal weight.

    >>> divided([1, 1, 8, 1, 1], 2)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    whole = max(sum(weights), 1)
    ends = list(accumulate(weights))
    # A neighbour belongs to the task in whose share its middle lies.
    middles = [2 * end - weight for end, weight in zip(ends, weights, strict=True)]
    owners = [min(tasks - 1, middle * tasks // (2 * whole)) for middle in middles]
    begins = [sum(owner < task for owner in owners) for task in range(tasks + 1)]
    return [slice(begins[task], begins[task + 1]) for task in range(tasks)]
