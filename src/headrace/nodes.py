"""The nodes of a graph: their identity, and what a step declares about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol


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


@dataclass(frozen=True, slots=True)
class DeclaredState:
    """A state that a step declares: how long a value lives, and by which time; None means for ever."""

    name: str
    ttl: int | None
    time: Literal["event", "clock"]


class StepDefinition(Protocol):
    """A step as plans, reports and engines read it; ``operators.step.Step`` is its base class and has the defaults."""

    @property
    def name(self) -> str:
        """The step's name, the identity of its state."""

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the step's state to stay valid; ``kind`` is part of it."""

    @property
    def state_description(self) -> str:
        """What the state holds and how long, in words."""

    @property
    def stateless(self) -> bool:
        """Whether rows only pass through: no state, and no watermark of its own."""

    @property
    def changelogs(self) -> tuple[int, ...]:
        """The numbers of the inputs that may be changelogs."""

    def check_inputs(self, given: int) -> None:
        """The step is called with as many frames as it takes."""

    @property
    def lateness(self) -> object | None:
        """The policy for late rows; None where no row can be late."""

    @property
    def retracts(self) -> bool:
        """Whether results may be retracted, so that rows carry a ``change``."""

    @property
    def previews(self) -> bool:
        """Whether results are emitted that later ones replace or retract, besides corrections."""

    @property
    def corrects(self) -> bool:
        """Whether late rows lead to further results, marked in the column ``pane``."""

    @property
    def combines(self) -> bool:
        """Whether rows of a key are combined before the shuffle."""

    @property
    def spread(self) -> int | None:
        """Over how many tasks the rows of one key are divided; None where they cannot be."""

    @property
    def holdback(self) -> int:
        """How far behind its input's event time a result may leave."""

    @property
    def retention(self) -> int:
        """How long state is kept for late rows, beyond what the results need."""

    @property
    def horizon(self) -> int:
        """How far apart in event time rows of one result may be."""

    @property
    def states(self) -> tuple[DeclaredState, ...]:
        """The states that the user has declared."""
