"""The base class of all steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pyspark.sql import DataFrame

from headrace.errors import DefinitionError, check_name
from headrace.event_time.lateness import Lateness
from headrace.nodes import StepDefinition
from headrace.operators.placement import StepOutputs, place, place_stateless


@dataclass(frozen=True, slots=True)
class LateRows:
    """What a step can do with late rows: which policies it offers, or why there is nothing to choose."""

    choices: str = "hr.drop(), hr.side_output() or hr.update_for('5 minutes')"
    consequence: str = "so some would silently be lost"
    """What would happen to late rows without a choice."""
    uncorrectable: str | None = None
    """Why late rows cannot correct results; None where they can."""
    never: str | None = None
    """Why no row is late; None where rows can be."""
    delivers: bool = False
    """Whether late rows may be handed to the user's code."""

    def check(self, label: str, lateness: object) -> None:
        """``lateness`` is a policy that the step offers."""
        if self.never is not None:
            raise DefinitionError("LATE_WITHOUT_MEANING", f"{label}: {self.never}. Remove .late({lateness!r}).")
        if not isinstance(lateness, Lateness) or (lateness.kind == "deliver" and not self.delivers):
            raise DefinitionError(
                "LATE_UNKNOWN", f"{label}: .late({lateness!r}) is not a policy for late rows. Use {self.choices}."
            )
        if lateness.kind == "update_for" and self.uncorrectable is not None:
            raise DefinitionError(
                "CORRECTIONS_IMPOSSIBLE",
                f"{label}: .late({lateness!r}) is not possible, because {self.uncorrectable}. Use {self.choices}.",
            )


FINAL = "hr.drop() or hr.side_output()"
"""The policies of a step whose results are never corrected."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Step(StepDefinition):
    """A step definition: a value, which is put into the pipeline by calling it with its input frames."""

    late_rows: ClassVar[LateRows] = LateRows()

    lateness: Lateness | None = None

    def __post_init__(self) -> None:
        check_name("step", self.name)

    def late(self, lateness: Lateness) -> Self:
        """Choose what happens to late rows; there is no default."""
        self.late_rows.check(self._label, lateness)
        return replace(self, lateness=lateness)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The frames that the step takes, as an error message names them."""
        return ("frame",)

    def check_inputs(self, given: int) -> None:
        if given != len(self.inputs):
            takes = f"{len(self.inputs)} frame{'s' if len(self.inputs) > 1 else ''}"
            raise DefinitionError("INPUTS_MISMATCH", f"{self._label} takes {takes}, but got {given}. {self._call_hint}")

    @property
    def _call_hint(self) -> str:
        return f"Call step({', '.join(self.inputs)})."

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """The main output for these input frames, as in ``frame.transform(step)`` or ``step(left, right)``."""
        return self.outputs(*frames).main

    def outputs(self, *frames: DataFrame) -> StepOutputs:
        """All outputs for these input frames: ``main``, ``late`` and those that the step declares."""
        return place_stateless(self, *frames) if self.stateless else place(self, *frames)

    @abstractmethod
    def bind(self, *inputs: Any, **named: Any) -> Any:
        """The operator over inputs of these schemas; each kind of step takes schema and time of each of its inputs."""

    @property
    def retention(self) -> int:
        return 0 if self.lateness is None else self.lateness.correctable

    @property
    def _label(self) -> str:
        """The step in error messages."""
        return f"step {self.name!r}"

    def _wrong(self, id: str, message: str) -> DefinitionError:
        return DefinitionError(id, f"{self._label}: {message}")

    def _check_free(self, what: str, names: Iterable[str], taken: Collection[str]) -> None:
        """No key column and no result has the name of another column of the results."""
        for name in names:
            if name in taken:
                others = ", ".join(taken)
                message = f"{what} {name!r} has the name of another column of results ({others}). Choose another name."
                raise self._wrong("RESULT_NAME_TAKEN", message)

    def _chosen_lateness(self) -> Lateness:
        if self.lateness is None:
            raise DefinitionError(
                "LATE_NOT_CHOSEN",
                f"{self._label} does not say what happens to late rows, {self.late_rows.consequence}. "
                f"Add .late(...) with {self.late_rows.choices}.",
            )
        return self.lateness

    @property
    def _positional(self) -> tuple[str, ...]:
        """The code of the arguments after the name, before the named ones."""
        return ()

    @property
    @abstractmethod
    def _arguments(self) -> Mapping[str, object]:
        """The named arguments as the user writes them; those that have their default are left out."""

    @property
    def _identity(self) -> Mapping[str, object]:
        """All arguments, where each of them shapes the state."""
        return self._arguments

    @property
    def _calls(self) -> tuple[str, ...]:
        """The code of the method calls after the arguments."""
        return (self._late_call,)

    @property
    def _late_call(self) -> str:
        return "" if self.lateness is None else f".late({self.lateness!r})"

    def __repr__(self) -> str:
        named = (f"{name}={value!r}" for name, value in self._arguments.items())
        return f"hr.{self.kind}({', '.join((repr(self.name), *self._positional, *named))}){''.join(self._calls)}"
