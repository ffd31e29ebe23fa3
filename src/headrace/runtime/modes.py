"""How a pipeline runs: batch after batch for ever, or over what is there now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of running."""

    kind: Literal["micro_batch", "available_now"]
    interval: int = 0
    drain: bool = False
    max_rows: int | None = None
    keep_up: bool = False

    def __repr__(self) -> str:
        arguments = [repr(spoken(self.interval)) if self.kind == "micro_batch" else f"drain={self.drain}"]
        arguments += [f"max_rows={self.max_rows}"] if self.max_rows is not None else []
        arguments += ["keep_up=True"] if self.keep_up else []
        return f"hr.{self.kind}({', '.join(arguments)})"


def micro_batch(interval: Duration = "1 second", *, max_rows: int | None = None, keep_up: bool = False) -> Mode:
    """Run until stopped; look for new rows at this interval.

    A batch takes at most ``max_rows`` of each source; with ``keep_up`` so many that it is done within the interval,
    learned from the batches before it.

    >>> micro_batch("500 milliseconds", keep_up=True)
    hr.micro_batch('500 milliseconds', keep_up=True)
    """
    length = positive_microseconds(interval, argument="interval")
    return Mode("micro_batch", length, max_rows=_positive(max_rows), keep_up=keep_up)


def available_now(*, drain: bool = False, max_rows: int | None = None) -> Mode:
    """Read what is there and stop; with ``drain`` the end of the data is the end of time and every window closes.

    >>> available_now(drain=True)
    hr.available_now(drain=True)
    """
    return Mode("available_now", drain=drain, max_rows=_positive(max_rows))


def _positive(rows: int | None) -> int | None:
    if rows is not None and rows < 1:
        raise DefinitionError("MAX_ROWS_TOO_SMALL", f"max_rows={rows} lets no row in. Give 1 or more, or leave it out.")
    return rows
