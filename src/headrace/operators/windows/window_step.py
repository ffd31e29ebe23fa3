"""A window step as an author says it: what all kinds of windows have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import polars as pl

from headrace.durations import spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.expressions import Aggregate, parse_aggregate
from headrace.operators.corrections import check_late
from headrace.operators.step import Outputs, check_key, place
from headrace.operators.windows.aggregation import Aggregation
from headrace.operators.windows.emission import ON_CLOSE, Emission
from headrace.operators.windows.panes import ACCUMULATING, Panes, check_panes
from headrace.wheel.operator import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TAKEN = ("window", "pane", "revision", "change", "session_id")


@dataclass(frozen=True, kw_only=True)
class WindowStep(ABC):
    """A value that becomes an operator once ``agg`` and ``late`` are chosen."""

    name: str
    key: tuple[str, ...]
    aggregates: tuple[Aggregate, ...] = ()
    emission: Emission = ON_CLOSE
    lateness: Lateness | None = None
    panes_kept: Panes = ACCUMULATING

    def agg(self, *unnamed: object, **aggregates: object) -> Self:
        """Name the results and give each an aggregate: SQL text as in ``spent="sum(amount)"``, or a value of ``hr``."""
        check_named(f"window {self.name!r}", unnamed)
        for name in aggregates:
            if name in (*TAKEN, *self.key):
                raise DefinitionError(
                    "RESULT_NAME_TAKEN",
                    f"window {self.name!r}: result {name!r} has the name of a key or of a column every window has "
                    f"({', '.join(TAKEN)}). Choose another name.",
                )
        parsed = tuple(parse_aggregate(given, name=name) for name, given in aggregates.items())
        return replace(self, aggregates=parsed)

    def emit(self, emission: Emission) -> Self:
        """Choose when results are emitted; ``hr.on_close()`` unless said otherwise."""
        if not isinstance(emission, Emission):
            raise DefinitionError(
                "EMISSION_UNKNOWN",
                f"window {self.name!r}: .emit({emission!r}) is not for windows that close. Use hr.on_close(), "
                f"hr.on_close(early={emission!r}) or hr.on_update().",
            )
        return replace(self, emission=emission)

    def late(self, lateness: Lateness) -> Self:
        """Choose what happens to late rows; there is no default."""
        check_late(f"window {self.name!r}", lateness)
        return replace(self, lateness=lateness)

    def panes(self, panes: Panes) -> Self:
        """Choose what a result says when a window is emitted again; ``hr.accumulating()`` unless said otherwise."""
        check_panes(self.name, panes)
        return replace(self, panes_kept=panes)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The windows of a frame, for ``frame.transform(step)``."""
        return self.outputs(frame).main

    def outputs(self, frame: DataFrame) -> Outputs:
        """The windows of a frame and, beside them, its late rows."""
        return place(self, self.bind, frame)

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        """The operator that runs over rows of this schema."""
        if self.lateness is None:
            more = ", .late(hr.side_output()) or .late(hr.update_for('5 minutes'))"
            raise DefinitionError(
                "LATE_NOT_CHOSEN",
                f"window {self.name!r} does not say what happens to late rows, so some would silently be lost. "
                f"Add .late(hr.drop()){more if self._corrects else ' or .late(hr.side_output())'}.",
            )
        if not self.aggregates:
            raise DefinitionError(
                "AGGREGATES_MISSING",
                f"window {self.name!r} computes nothing. Add .agg(...), as in .agg(rows='count(*)').",
            )
        check_key(self.name, self.key, schema)
        for column in self.key:
            if column in self._told:
                raise DefinitionError(
                    "KEY_NAME_TAKEN",
                    f"window {self.name!r}: key column {column!r} has the name of a column of its results "
                    f"({', '.join(self._told)}). Rename it before.",
                )
        aggregation = Aggregation(self.name, self.key, time, dict(schema), self.aggregates)
        operator = self._operator(aggregation, self.lateness)
        _ = operator.output_schema  # types of all aggregates are checked here, before any data is read
        return operator

    @abstractmethod
    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        """What runs."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """How far apart in event time rows of one result may be."""

    @property
    @abstractmethod
    def _shape(self) -> Mapping[str, object]:
        """The kind, and what makes its windows what they are; part of the state's identity."""

    @property
    @abstractmethod
    def _said(self) -> Mapping[str, object]:
        """The author's own arguments, for the step's text."""

    @property
    def _told(self) -> tuple[str, ...]:
        """The columns of every result beside the key and the aggregates."""
        return TAKEN[:-1]

    @property
    def combines(self) -> bool:
        """Whether rows of a key become one before they travel."""
        return False

    @property
    def _emits(self) -> str:
        """How the author says when results leave."""
        return f".emit({self.emission!r})"

    @property
    def _corrects(self) -> bool:
        """Whether late rows may correct results."""
        return True

    @property
    def previews(self) -> bool:
        """Whether results are emitted that a later one replaces or takes back, besides corrections."""
        return self.emission.previews or self.takes_back

    @property
    def corrects(self) -> bool:
        """Whether late rows lead to further results of a window."""
        return self.lateness is not None and self.lateness.correctable > 0

    @property
    def takes_back(self) -> bool:
        """Whether results may be taken back, so that rows carry a ``change``."""
        return self.panes_kept.kind == "retracting"

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the state to stay valid; ``late`` may only become longer."""
        aggregates = {aggregate.name: aggregate.text for aggregate in self.aggregates}
        return {**self._shape, "key": list(self.key), "panes": self.panes_kept.kind, "aggregates": aggregates}

    @property
    def retention(self) -> int:
        """How long state is kept after a window has closed."""
        return 0 if self.lateness is None else self.lateness.correctable

    @property
    def holds(self) -> str:
        """What the state holds and how long, in words."""
        return f"a row for each key and open window, {self._until('the window')}"

    def _until(self, what: str) -> str:
        """When a state row leaves, in words."""
        return f"until {what} closes" + (f" and {spoken(self.retention)} longer" if self.retention else "")

    def __repr__(self) -> str:
        given = {name: value for name, value in self._said.items() if value is not None or name == "key"}
        said = "".join(f", {name}={value!r}" for name, value in given.items())
        aggregates = ", ".join(f"{aggregate.name}={aggregate.code}" for aggregate in self.aggregates)
        chain = f".agg({aggregates})" if aggregates else ""
        chain += self._emits
        chain += "" if self.lateness is None else f".late({self.lateness!r})"
        chain += "" if self.panes_kept == ACCUMULATING else f".panes({self.panes_kept!r})"
        return f"hr.{self._shape['kind']}({self.name!r}{said}){chain}"


def check_named(called: str, unnamed: Sequence[object]) -> None:
    """Every aggregate has a name."""
    if unnamed:
        raise DefinitionError(
            "AGGREGATE_UNNAMED",
            f"{called}: {unnamed[0]!r} has no name to stand under in the result. Give it one, as in "
            ".agg(rows='count(*)').",
        )
