"""How a pipeline runs: batch after batch for ever, or over what is there now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.durations import Duration, positive_microseconds, spoken


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of running."""

    kind: Literal["micro_batch", "available_now"]
    interval: int = 0
    drain: bool = False

    def __repr__(self) -> str:
        argument = repr(spoken(self.interval)) if self.kind == "micro_batch" else f"drain={self.drain}"
        return f"hr.{self.kind}({argument})"


def micro_batch(interval: Duration = "1 second") -> Mode:
    """Run until stopped; look for new rows at this interval.

    >>> micro_batch("500 milliseconds")
    hr.micro_batch('500 milliseconds')
    """
    return Mode("micro_batch", positive_microseconds(interval, argument="interval"))


def available_now(*, drain: bool = False) -> Mode:
    """Read what is there and stop; with ``drain`` the end of the data is the end of time and every window closes.

    >>> available_now(drain=True)
    hr.available_now(drain=True)
    """
    return Mode("available_now", drain=drain)
