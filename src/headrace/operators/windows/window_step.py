"""The base class of window steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import polars as pl

from headrace.changelog import CHANGE
from headrace.durations import spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.expressions import Aggregate, parse_aggregate
from headrace.nodes import ResultVersions
from headrace.operators.step import Step
from headrace.operators.windows.aggregation import RESULT_COLUMNS, Aggregation
from headrace.operators.windows.emission import ACCUMULATING, ON_CLOSE, AccumulationMode, Emission, preview_rule
from headrace.wheel.operator import Operator

TAKEN = (*RESULT_COLUMNS, "session_id")


@dataclass(frozen=True, kw_only=True, repr=False)
class AggregatingStep(Step):
    """A step that computes aggregates; call ``.agg()`` before use."""

    taken: ClassVar[tuple[str, ...]]
    """The names that no result may have, beside those of the key."""

    aggregates: tuple[Aggregate, ...] = ()

    def agg(self, *unnamed: object, **aggregates: object) -> Self:
        """Name the results and give each an aggregate: SQL text as in ``spent="sum(amount)"``, or an ``hr`` value."""
        if unnamed:
            raise self._wrong("AGGREGATE_UNNAMED", f"{unnamed[0]!r} has no name. Name it, as in .agg(rows='count(*)').")
        self._check_free("result", aggregates, (*self.taken, *self.key))
        parsed = tuple(parse_aggregate(given, name=name) for name, given in aggregates.items())
        return replace(self, aggregates=parsed)

    def _check_aggregates(self) -> None:
        if not self.aggregates:
            raise self._wrong("AGGREGATES_MISSING", "it computes nothing. Add .agg(...), as in .agg(rows='count(*)').")

    @property
    def _aggregates(self) -> Mapping[str, str]:
        return {aggregate.name: aggregate.text for aggregate in self.aggregates}

    @property
    def _agg_call(self) -> str:
        aggregates = ", ".join(f"{aggregate.name}={aggregate.code}" for aggregate in self.aggregates)
        return f".agg({aggregates})" if aggregates else ""


@dataclass(frozen=True, kw_only=True, repr=False)
class WindowStep(AggregatingStep):
    """A window step; call ``.agg()`` and ``.late()`` before use."""

    taken = TAKEN
    keeps_key = True
    result_columns: ClassVar[tuple[str, ...]] = RESULT_COLUMNS
    window_id: ClassVar[tuple[str, ...] | None] = ("window",)
    """The column, or the field of one, that identifies a window of a key; None where none does."""

    emission: Emission = ON_CLOSE
    accumulation: AccumulationMode = ACCUMULATING

    def emit(self, emission: Emission) -> Self:
        """Choose when results are emitted; ``hr.on_close()`` by default."""
        if not isinstance(emission, Emission):
            advice = f"Use hr.on_close(), hr.on_close(early={emission!r}) or hr.on_update()."
            raise self._no_emission(emission, f"windows that close. {advice}")
        if emission.early is not None:
            preview_rule(emission.early, "")
        return replace(self, emission=emission)

    def panes(self, panes: AccumulationMode) -> Self:
        """Choose the accumulation mode; ``hr.accumulating()`` by default."""
        if not isinstance(panes, AccumulationMode):
            advice = "Use hr.accumulating(), hr.discarding() or hr.retracting(), with the parentheses."
            raise self._no_panes(panes, f"an accumulation mode. {advice}")
        return replace(self, accumulation=panes)

    def _no_emission(self, given: object, what: str) -> DefinitionError:
        return self._wrong("EMISSION_UNKNOWN", f".emit({given!r}) is not for {what}")

    def _no_panes(self, given: object, what: str) -> DefinitionError:
        return self._wrong("PANES_UNKNOWN", f".panes({given!r}) is not {what}")

    def bind(self, schema: Mapping[str, pl.DataType], time: str) -> Operator:
        lateness = self._chosen_lateness()
        self._check_aggregates()
        self._check_free("key column", self.key, self.result_columns)
        aggregation = Aggregation(self.name, self.key, time, dict(schema), self.aggregates)
        if aggregation.ranked is not None:
            self._check_ranked(aggregation)
        operator = self._operator(aggregation, lateness)
        _ = operator.output_schema  # types of all aggregates are checked here, before any data is read
        return operator

    def _check_ranked(self, aggregation: Aggregation) -> None:
        """There is one aggregate that gives rows, and none of their columns has the name of another."""
        ranked = [each for each in self.aggregates if each.function.gives_rows]
        if len(ranked) > 1 or self.window_id is None:
            several = "each of them would be a row of its own"
            why = several if len(ranked) > 1 else "a sliding window gives a row for a row"
            raise self._wrong(
                "TOP_ROWS_MISPLACED",
                f"{ranked[-1].name} = {ranked[-1].code}: {why}. Use one rows=True in a step, in any other kind of "
                "window.",
            )
        self._check_row_columns(aggregation, aggregation.ranked_rows)

    def _check_row_columns(self, aggregation: Aggregation, columns: Collection[str]) -> None:
        """A row's own columns have other names than results; those of an earlier window are replaced."""
        follows_windows = aggregation.schema[aggregation.time].is_nested()
        taken = [] if follows_windows else [name for name in self.result_columns if name in aggregation.schema]
        taken += [name for name in aggregation.results if name in columns]
        if taken:
            raise self._wrong(
                "RESULT_NAME_TAKEN",
                f"its results stand beside the row's own columns, and {taken[0]!r} would be both. Choose another name "
                "for the result, or rename the column before.",
            )

    @abstractmethod
    def _operator(self, aggregation: Aggregation, lateness: Lateness) -> Operator:
        """The operator of this kind of window."""

    @property
    def _emit_call(self) -> str:
        return f".emit({self.emission!r})"

    @property
    def _label(self) -> str:
        return f"window {self.name!r}"

    @property
    def previews(self) -> bool:
        return self.emission.previews or self.retracts

    @property
    def corrects(self) -> bool:
        return self.retention > 0

    @property
    def retracts(self) -> bool:
        return self.accumulation.kind == "retracting"

    @property
    def versions(self) -> ResultVersions | None:
        if self.window_id is None or self.accumulation.kind == "discarding":
            return None
        ranked = ((each.name,) for each in self.aggregates if each.function.gives_rows)
        key = (*((name,) for name in self.key), self.window_id, *ranked)
        return ResultVersions(key, "revision", CHANGE if self.retracts else None)

    @property
    def _identity(self) -> Mapping[str, object]:
        return {**self._arguments, "panes": self.accumulation.kind, "aggregates": self._aggregates}

    @property
    def state_description(self) -> str:
        return f"a row for each key and open window, {self._until('the window')}"

    def _until(self, what: str) -> str:
        return f"until {what} closes" + (f" and {spoken(self.retention)} longer" if self.retention else "")

    @property
    def _calls(self) -> tuple[str, ...]:
        panes = "" if self.accumulation == ACCUMULATING else f".panes({self.accumulation!r})"
        return (self._agg_call, self._emit_call, self._late_call, panes)
