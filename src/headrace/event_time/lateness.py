"""Policies for late rows; every step whose rows can be late must choose one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.stability import stable


@dataclass(frozen=True, slots=True)
class Lateness:
    """A lateness policy: whether late rows are kept aside, and how long a closed window takes corrections."""

    kind: Literal["drop", "side_output", "update_for", "deliver"]
    correctable: int = 0

    @property
    def keeps_rows(self) -> bool:
        """Whether rows that are too late even for a correction leave by the ``late`` output."""
        return self.kind in ("side_output", "update_for")

    def __repr__(self) -> str:
        argument = repr(spoken(self.correctable)) if self.kind == "update_for" else ""
        return f"hr.{self.kind}({argument})"


@stable
def drop() -> Lateness:
    """Late rows are counted and discarded.

    >>> drop()
    hr.drop()
    """
    return Lateness("drop")


@stable
def side_output() -> Lateness:
    """Late rows leave whole, with how late they were, by the step's ``late`` output.

    >>> side_output()
    hr.side_output()
    """
    return Lateness("side_output")


@stable
def update_for(duration: Duration) -> Lateness:
    """A closed window is corrected by late rows for this long; later rows leave by the ``late`` output.

    >>> update_for("5 minutes")
    hr.update_for('5 minutes')
    """
    return Lateness("update_for", positive_microseconds(duration, argument="update_for"))


@stable
def deliver() -> Lateness:
    """Late rows are handed to ``on_row`` of a process at once, with their own time and ``context.late`` true.

    What they emit is late for a following step.

    >>> deliver()
    hr.deliver()
    """
    return Lateness("deliver")
