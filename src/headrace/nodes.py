"""The nodes of a graph: their identity, and what a step declares about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal


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


@dataclass(frozen=True, slots=True)
class ResultVersions:
    """Which rows are versions of one result, so that the last one counts."""

    key: tuple[tuple[str, ...], ...] = ()
    """The columns, or fields of columns, that identify a result."""
    revision: str | None = None
    """The column that numbers the versions."""
    change: str | None = None
    """The column that says whether a row takes a result back."""
    unknown: str | None = None
    """Why it is not known which rows belong together; None where it is."""


@dataclass(frozen=True, kw_only=True, repr=False)
class StepDefinition(ABC):
    """What a step declares about itself, which plans, reports and both engines read."""

    kind: ClassVar[str]
    """The function of ``hr`` that makes the step."""
    stateless: ClassVar[bool] = False
    """Whether rows only pass through: no state, and no watermark of its own."""
    keeps_key: ClassVar[bool] = False
    """Whether a result has the key columns of the rows that it is made of, with their values."""
    changelogs: ClassVar[tuple[int, ...]] = ()
    """The numbers of the inputs that may be changelogs; in all others every row counts for itself."""

    name: str
    """The identity of the step's state."""
    key: tuple[str, ...]
    """The key columns, as the output names them."""
    lateness: object | None = None
    """The policy for late rows; None where no row can be late."""

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the step's state to stay valid; ``late`` may only become longer."""
        return {"kind": self.kind, **self._identity}

    @property
    @abstractmethod
    def _identity(self) -> Mapping[str, object]:
        """The part of the fingerprint that is the step's own."""

    @property
    @abstractmethod
    def state_description(self) -> str:
        """What the state holds and how long, in words and, where it is known, as a bound."""

    @property
    def retracts(self) -> bool:
        """Whether results may be retracted, so that rows carry a ``change``."""
        return False

    @property
    def previews(self) -> bool:
        """Whether results are emitted that later ones replace or retract, besides corrections."""
        return False

    @property
    def corrects(self) -> bool:
        """Whether late rows lead to further results, marked in the column ``pane``."""
        return False

    @property
    def versions(self) -> ResultVersions | None:
        """What identifies a result among those that replace it or take it back; None where no column does."""
        return None

    @property
    def combines(self) -> bool:
        """Whether rows of a key are combined before the shuffle."""
        return False

    @property
    def spread(self) -> int | None:
        """Over how many tasks the rows of one key are divided; None where they cannot be."""
        return None

    @property
    def holdback(self) -> int:
        """How far behind its input's event time a result may leave."""
        return 0

    @property
    def retention(self) -> int:
        """How long state is kept for late rows, beyond what the results need."""
        return 0

    @property
    def horizon(self) -> int:
        """How far apart in event time rows of one result may be."""
        return 0

    @property
    def states(self) -> tuple[DeclaredState, ...]:
        """The states that the user has declared."""
        return ()
