"""What a step may answer to late rows: whether it is an answer at all, and whether the step can keep it."""

from __future__ import annotations

from typing import NoReturn

from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness


def check_late(
    called: str, lateness: object, *, instead: str = "hr.drop(), hr.side_output() or hr.update_for('5 minutes')"
) -> None:
    """What ``.late(...)`` was given is an answer to late rows.

    >>> from headrace.event_time.lateness import drop
    >>> check_late("step 'once'", drop())
    """
    if not isinstance(lateness, Lateness):
        raise DefinitionError(
            "LATE_UNKNOWN", f"{called}: .late({lateness!r}) does not say what happens to late rows. Use {instead}."
        )


def check_final(called: str, lateness: object, why: str, *, instead: str = "hr.drop() or hr.side_output()") -> None:
    """Late rows are not to correct the results of a step, as ``hr.update_for(...)`` would have it.

    >>> from headrace.event_time.lateness import drop
    >>> check_final("step 'once'", drop(), "rows are not taken back")
    """
    check_late(called, lateness, instead=instead)
    if isinstance(lateness, Lateness) and lateness.kind == "update_for":
        raise DefinitionError(
            "CORRECTIONS_IMPOSSIBLE",
            f"{called}: .late({lateness!r}) cannot be kept, because {why}. Use {instead}.",
        )


def refuse_late(step: str, lateness: object, why: str) -> NoReturn:
    """A step of which no row is late takes no answer to late rows."""
    raise DefinitionError("LATE_WITHOUT_MEANING", f"step {step!r}: {why}. Leave .late({lateness!r}) away.")
