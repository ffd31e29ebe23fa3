"""The after-match skip strategies: what becomes of matches that overlap an emitted one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal, get_args

from headrace.stability import stable

stable(sys.modules[__name__])

Kind = Literal["none", "to_next", "past_last", "to_first", "to_last"]
KINDS = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Skip:
    """Which partial matches are discarded once a match has been emitted, by the row they began with."""

    kind: Kind
    step: str | None = None

    def __repr__(self) -> str:
        return f"hr.skip.{self.kind}({'' if self.step is None else repr(self.step)})"


def none() -> Skip:
    """Every match is emitted.

    >>> none()
    hr.skip.none()
    """
    return Skip("none")


def to_next() -> Skip:
    """At most one match begins with a row: others that began with the same row are discarded.

    >>> to_next()
    hr.skip.to_next()
    """
    return Skip("to_next")


def past_last() -> Skip:
    """Matches do not overlap: all that began before the match ended are discarded.

    >>> past_last()
    hr.skip.past_last()
    """
    return Skip("past_last")


def to_first(step: str) -> Skip:
    """All that began before the match's first row of a step are discarded.

    >>> to_first("b")
    hr.skip.to_first('b')
    """
    return Skip("to_first", step)


def to_last(step: str) -> Skip:
    """All that began before the match's last row of a step are discarded.

    >>> to_last("b")
    hr.skip.to_last('b')
    """
    return Skip("to_last", step)
