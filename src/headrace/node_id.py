"""The identity of a node of the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, order=True)
class NodeId:
    """A source, an input of a step, or the state of a step; what reports and edges name.

    >>> NodeId.parse("step.enriched.rules")
    NodeId(kind='step', name='enriched', input='rules')
    >>> str(NodeId("source", "payments"))
    'source.payments'
    """

    kind: Literal["source", "step", "state"]
    name: str
    input: str = ""
    """The name of a step's second input; empty otherwise."""

    @classmethod
    def parse(cls, text: str) -> NodeId:
        """The node that its text form names."""
        return cls(*text.split("."))  # type: ignore[arg-type]

    @property
    def path(self) -> str:
        """The name, with that of the input; without the kind.

        >>> NodeId("step", "enriched", "rules").path
        'enriched.rules'
        """
        return f"{self.name}.{self.input}" if self.input else self.name

    def __str__(self) -> str:
        return f"{self.kind}.{self.path}"
