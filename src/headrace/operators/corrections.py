"""Steps whose results stand once they have left."""

from __future__ import annotations

from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.operators.process.late import Deliver


def check_final(
    called: str, lateness: Lateness | Deliver, why: str, *, instead: str = "hr.drop() or hr.side_output()"
) -> None:
    """Late rows are not to correct the results of a step, as ``hr.update_for(...)`` would have it.

    >>> from headrace.event_time.lateness import drop
    >>> check_final("step 'once'", drop(), "rows are not taken back")
    """
    if lateness.kind == "update_for":
        raise DefinitionError(
            "CORRECTIONS_IMPOSSIBLE",
            f"{called}: .late({lateness!r}) cannot be kept, because {why}. Use {instead}.",
        )
