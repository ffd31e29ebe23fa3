"""One more answer to late rows, which only a process can give: the author's code takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Deliver:
    """Late rows are handled at once, with ``context.late``; what they emit is late for a following step."""

    kind: Literal["deliver"] = "deliver"
    correctable: int = 0

    @property
    def keeps_rows(self) -> bool:
        """No row leaves by the ``late`` output."""
        return False

    def __repr__(self) -> str:
        return "hr.deliver()"


def deliver() -> Deliver:
    """Late rows are handed to ``on_row`` at once, with their own time and ``context.late`` true.

    >>> deliver()
    hr.deliver()
    """
    return Deliver()
