"""What Headrace asks of a sink, and what a sink promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

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


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the ``out`` rows a sink was given: written now, or already marked by an earlier attempt."""

    out: int
    rows: int
    already_marked: int = 0


@runtime_checkable
class Sink(Protocol):
    """A place for results; any class with these members is a sink."""

    @property
    def guarantee(self) -> Guarantee:
        """What the sink promises when a batch is written again after a crash."""

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        """Write a batch by running the frame exactly once, and leave a mark with its rows."""
