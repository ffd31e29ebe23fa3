"""What happens when an author's code fails: the flow stops, or the row becomes a dead letter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.errors import DefinitionError

Then = Literal["stop", "dead_letter"]


@dataclass(frozen=True, slots=True)
class OnError:
    """How often a failed call is tried again, and what then becomes of its row."""

    again: int
    then: Then

    def __repr__(self) -> str:
        return repr(self.then) if self.again == 0 else f"hr.retry({self.again}, then={self.then!r})"


def retry(times: int, *, then: Then) -> OnError:
    """Call again so often, each time from the state before the call; then stop, or make the row a dead letter.

    >>> retry(3, then="dead_letter")
    hr.retry(3, then='dead_letter')
    """
    if type(times) is not int or times < 1 or then not in ("stop", "dead_letter"):
        raise DefinitionError(
            "ON_ERROR_UNKNOWN",
            f"hr.retry({times!r}, then={then!r}) says nothing that could be done. Give a whole number of at least 1 "
            "and then='stop' or then='dead_letter'.",
        )
    return OnError(times, then)


def on_error_of(given: Then | OnError, *, step: str) -> OnError:
    """What an author says for ``on_error=``.

    >>> on_error_of("stop", step="logins")
    'stop'
    """
    if isinstance(given, OnError):
        return given
    if given not in ("stop", "dead_letter"):
        raise DefinitionError(
            "ON_ERROR_UNKNOWN",
            f"step {step!r}: on_error={given!r} is not known. Use 'stop', 'dead_letter' or "
            "hr.retry(3, then='dead_letter').",
        )
    return OnError(0, given)
