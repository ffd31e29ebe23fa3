"""A pattern compiled for a schema: conditions as columns, which rows can matter, the matcher, and the measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.nodes import columns_of, step_values_of
from headrace.expressions.operands import Operand
from headrace.expressions.rows import PolarsLowering
from headrace.expressions.step_expressions import parse_step_expression
from headrace.operators.patterns.automaton import START, Automaton
from headrace.operators.patterns.compiler import compile_automaton
from headrace.operators.patterns.definition import PatternDefinition
from headrace.operators.patterns.match_values import CarriedColumns, Reader, physical, reader, step_operands
from headrace.operators.patterns.matcher import Matcher, Node

_Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of a pattern: SQL text over its steps, bound to the columns that rows carry."""

    operands: Mapping[str, Operand]
    """Each measure as an expression over the step values."""
    step_values: Mapping[str, tuple[pl.DataType, Reader]]

    @property
    def schema(self) -> dict[str, pl.DataType]:
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
    trees = {name: parse_step_expression(text, steps) for name, text in measures.items()}
    for name, tree in trees.items():
        for column in columns_of(tree):
            raise DefinitionError(
                "STEP_MISSING",
                f"measure {name!r}: '{measures[name]}' does not name the step of '{column.sql}'. "
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
        return compile_automaton(self.definition.elements)

    @cached_property
    def matcher(self) -> Matcher:
        definition = self.definition
        functions = [condition.bind(self.columns, definition.steps) for condition in definition.conditions]
        over_match = {1 << number: function for number, function in enumerate(functions) if function is not None}
        return Matcher(
            self.automaton, within=definition.within, skip=definition.skip, most=self.most, conditions=over_match
        )

    @cached_property
    def measures(self) -> Measures:
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
        for number, condition in enumerate(self.definition.conditions):
            bit = pl.lit(1 << number, pl.Int64)
            if condition.of_row:
                holds = pl.all_horizontal(part.truth(self.columns.schema) for part in condition.of_row)
                bit = pl.when(holds).then(bit).otherwise(pl.lit(0, pl.Int64))
            met = met + bit
        return met

    @cached_property
    def _fragile(self) -> bool:
        """Whether a row that meets no condition ends every partial match, as when all follows directly."""
        return all(self.matcher.table.compute(state, 0) == () for state in range(1, len(self.automaton.states)))

    def needed(self, key: _Numbers, time: _Numbers, hits: _Numbers, living: _Mask) -> _Mask:
        """Which rows must be stepped through, given rows by key in order, and which keys have partial matches.

        A row before the first that could begin a match cannot matter to a key without partial matches. Where a row
        that meets no condition ends everything, the same holds behind each such row, and for a run that is too short.
        """
        if len(hits) == 0:
            return np.zeros(0, np.bool_)
        place = np.arange(len(hits))
        empty = hits == 0
        first_of_key = np.r_[True, key[1:] != key[:-1]]
        after_empty = np.r_[False, empty[:-1]] & ~first_of_key
        first_of_run = first_of_key | after_empty if self._fragile else first_of_key
        run_begin = np.maximum.accumulate(np.where(first_of_run, place, 0))
        begins = hits & self.matcher.table.relevant[START] != 0
        needed = np.maximum.accumulate(np.where(begins, place, -1)) >= run_begin
        if self._fragile and not self.automaton.limits:
            needed &= ~self._too_short(time, begins, empty, np.flatnonzero(first_of_run))
        needed |= living[key] & (run_begin == np.maximum.accumulate(np.where(first_of_key, place, 0)))
        # Of several rows in a row that meet no condition, the second changes nothing.
        needed &= ~(empty & after_empty)
        return needed

    def _too_short(self, time: _Numbers, begins: _Mask, empty: _Mask, runs: _Numbers) -> _Mask:
        """Rows of runs that end before a match could be complete, and before one could run out of time."""
        rows = len(time)
        last = np.r_[runs[1:], rows] - 1
        first = np.minimum.reduceat(np.where(begins, np.arange(rows), rows), runs)
        shortest = sum(element.shortest for element in self.definition.elements)
        short = empty[last] & (last - first < shortest)
        if self.definition.within is not None:
            short &= time[last] - time[np.minimum(first, rows - 1)] < self.definition.within
        return np.repeat(short, last - runs + 1)
