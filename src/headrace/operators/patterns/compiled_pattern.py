"""A pattern compiled for a schema: its conditions as columns, its matcher, and its measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.nodes import Expression, columns_of, step_values_of
from headrace.expressions.operands import Operand
from headrace.expressions.parser import parse_step_expression
from headrace.expressions.rows import PolarsLowering
from headrace.operators.patterns.automaton import Automaton
from headrace.operators.patterns.compiler import compile_automaton
from headrace.operators.patterns.definition import PatternDefinition
from headrace.operators.patterns.match_conditions import StepCondition
from headrace.operators.patterns.match_values import CarriedColumns, Reader, physical, reader, step_operands
from headrace.operators.patterns.matcher import Matcher, Node
from headrace.operators.patterns.row_pruning import RowPruning


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of a pattern: SQL text over its steps, bound to the columns that rows carry."""

    operands: Mapping[str, Operand]
    """Each measure as an expression over the step values."""
    step_values: Mapping[str, tuple[pl.DataType, Reader]]

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The type of each measure."""
        return {name: operand.dtype for name, operand in self.operands.items()}

    def of(self, matches: Sequence[Node]) -> pl.DataFrame:
        """The measures of matches, each given by its last node."""
        values = {
            name: pl.Series(name, [read(None, node) for node in matches], physical(dtype), strict=True).cast(dtype)
            for name, (dtype, read) in self.step_values.items()
        }
        given = pl.DataFrame(values) if values else pl.DataFrame(height=len(matches))
        return given.select(operand.value.cast(operand.dtype).alias(name) for name, operand in self.operands.items())


def bind_measures(measures: Mapping[str, str], columns: CarriedColumns, steps: Sequence[str]) -> Measures:
    """Parse and bind measures.

    >>> columns = CarriedColumns({"amount": pl.Float64()})
    >>> bind_measures({"most": "max(b.amount)", "rows": "count(b.*)"}, columns, ["a", "b"]).schema
    {'most': Float64, 'rows': Int64}
    """
    trees: dict[str, Expression] = {}
    for name, text in measures.items():
        trees[name] = parse_step_expression(text, steps)
        without_step = columns_of(trees[name])
        if without_step:
            column = without_step[0]
            raise DefinitionError(
                "STEP_MISSING",
                f"measure {name!r}: '{text}' does not name the step of '{column.sql}'. "
                f"Write it as in '{steps[0]}.{column.path[-1]}'. Steps: {', '.join(steps)}.",
            )
    values = step_operands([value for tree in trees.values() for value in step_values_of(tree)], columns.schema)
    operands = {name: PolarsLowering(measures[name], {}, values).operand(tree) for name, tree in trees.items()}
    readers = {each.sql: (of.dtype, reader(each, columns, steps, of.dtype)) for each, of in values.items()}
    return Measures(operands, readers)


@dataclass(frozen=True)
class CompiledPattern:
    """Everything that matching needs; ``columns`` collects what rows carry."""

    definition: PatternDefinition
    most: int
    columns: CarriedColumns

    @cached_property
    def automaton(self) -> Automaton:
        """The automaton."""
        return compile_automaton(self.definition.elements)

    @cached_property
    def _conditions(self) -> list[StepCondition]:
        return self.definition.conditions()

    @cached_property
    def matcher(self) -> Matcher:
        """Runs the automaton over the rows of a key."""
        definition = self.definition
        functions = [condition.bind(self.columns, definition.steps) for condition in self._conditions]
        over_match = {1 << number: function for number, function in enumerate(functions) if function is not None}
        within, skip = definition.within, definition.skip
        return Matcher(self.automaton, within=within, skip=skip, most=self.most, conditions=over_match)

    @cached_property
    def measures(self) -> Measures:
        """The result columns of a match."""
        return bind_measures(dict(self.definition.measures), self.columns, self.definition.steps)

    @cached_property
    def carried(self) -> dict[str, pl.DataType]:
        """The names of the carried columns, and their types while matching."""
        _ = self.matcher, self.measures  # binding them collects the columns
        return {f"__value_{number}": physical(dtype) for number, dtype in enumerate(self.columns.types)}

    @cached_property
    def hits(self) -> pl.Expr:
        """The conditions that a row meets by itself, as one number."""
        met = pl.lit(0, pl.Int64)
        for number, condition in enumerate(self._conditions):
            bit = pl.lit(1 << number, pl.Int64)
            if condition.of_row:
                holds = pl.all_horizontal(part.truth(self.columns.schema) for part in condition.of_row)
                bit = pl.when(holds).then(bit).otherwise(pl.lit(0, pl.Int64))
            met = met + bit
        return met

    @cached_property
    def pruning(self) -> RowPruning:
        """Which rows can matter."""
        shortest = sum(element.shortest for element in self.definition.elements)
        return RowPruning(self.automaton, self.definition.within, shortest)
