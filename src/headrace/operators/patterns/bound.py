"""A definition bound to a schema: what is computed of whole columns, what steps through rows, what a match says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.operators.patterns.automaton import START, Automaton
from headrace.operators.patterns.compiler import automaton_of
from headrace.operators.patterns.definition import Definition
from headrace.operators.patterns.match_conditions import StepCondition
from headrace.operators.patterns.match_values import CarriedColumns
from headrace.operators.patterns.matcher import Condition, Matcher
from headrace.operators.patterns.measure import Measures, bind_measures
from headrace.operators.patterns.moves import Moves


@dataclass(frozen=True)
class BoundPattern:
    """Everything that matching needs; ``columns`` collects what must travel with each row."""

    definition: Definition
    most: int
    columns: CarriedColumns

    @cached_property
    def automaton(self) -> Automaton:
        """The compiled pattern."""
        return automaton_of(self.definition.elements)

    @cached_property
    def conditions(self) -> list[StepCondition]:
        """The conditions in the automaton's order."""
        return self.definition.conditions()

    @cached_property
    def matcher(self) -> Matcher:
        """What steps through the rows of a key."""
        over_match: dict[int, Condition] = {}
        for number, condition in enumerate(self.conditions):
            function = condition.bind(self.columns, self.definition.steps)
            if function is not None:
                over_match[1 << number] = function
        return Matcher(
            self.automaton,
            within=self.definition.within,
            skip=self.definition.skip,
            most=self.most,
            conditions=over_match,
        )

    @cached_property
    def measures(self) -> Measures:
        """What a match says."""
        return bind_measures(dict(self.definition.measures), self.columns, self.definition.steps)

    @cached_property
    def hits(self) -> pl.Expr:
        """The conditions that a row meets by itself, as one number."""
        met = pl.lit(0, pl.Int64)
        for number, condition in enumerate(self.conditions):
            bit = pl.lit(1 << number, pl.Int64)
            if not condition.of_row:
                met = met + bit
                continue
            holds = pl.all_horizontal(part.truth(self.columns.schema) for part in condition.of_row)
            met = met + pl.when(holds).then(bit).otherwise(pl.lit(0, pl.Int64))
        return met

    @cached_property
    def starting(self) -> int:
        """The conditions of rows that may begin a match."""
        return Moves(self.automaton).relevant[START]

    @cached_property
    def fragile(self) -> bool:
        """Whether a row that meets no condition ends every partial match, as when all follows directly."""
        moves = Moves(self.automaton)
        return all(moves.work_out(state, 0) == () for state in range(1, len(self.automaton.states)))

    @cached_property
    def shortest(self) -> int:
        """The least number of rows in a match."""
        return sum(element.shortest for element in self.definition.elements)
