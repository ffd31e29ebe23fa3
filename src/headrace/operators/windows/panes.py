"""What a result says when a window is emitted again: everything so far, what is new, or what is taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class AccumulationMode:
    """How the results of one window relate to each other."""

    kind: Literal["accumulating", "discarding", "retracting"]

    def __repr__(self) -> str:
        return f"hr.{self.kind}()"


ACCUMULATING, DISCARDING, RETRACTING = (
    AccumulationMode("accumulating"),
    AccumulationMode("discarding"),
    AccumulationMode("retracting"),
)


def accumulating() -> AccumulationMode:
    """Each result holds everything so far and replaces the one before.

    >>> accumulating()
    hr.accumulating()
    """
    return ACCUMULATING


def discarding() -> AccumulationMode:
    """Each result holds only what has come since the one before; a reader adds them up.

    >>> discarding()
    hr.discarding()
    """
    return DISCARDING


def retracting() -> AccumulationMode:
    """Each result takes the one before back (``change = update_before``), then gives everything so far.

    >>> retracting()
    hr.retracting()
    """
    return RETRACTING


def check_accumulation(window: str, panes: object) -> None:
    """What ``.panes(...)`` was given is one of the three.

    >>> check_accumulation("hourly", discarding())
    """
    if not isinstance(panes, AccumulationMode):
        raise DefinitionError(
            "PANES_UNKNOWN",
            f"window {window!r}: .panes({panes!r}) does not say what a second result says about the first. Use "
            "hr.accumulating(), hr.discarding() or hr.retracting(), each with its brackets.",
        )
