"""What a match says: SQL text over its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions.nodes import Expression, columns_of, step_values_of
from headrace.expressions.operands import Operand
from headrace.expressions.parser import parse_step_expression
from headrace.expressions.rows import PolarsLowering
from headrace.operators.patterns.match_values import CarriedColumns, Reader, physical, reader, step_operands
from headrace.operators.patterns.matcher import Node


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of a pattern, bound to the columns that rows carry."""

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
        for column in columns_of(trees[name]):
            raise DefinitionError(
                "STEP_MISSING",
                f"measure {name!r}: '{text}' does not say which step '{column.sql}' is of. "
                f"Write it as in '{steps[0]}.{column.path[-1]}'. Steps: {', '.join(steps)}.",
            )
    values = step_operands([value for tree in trees.values() for value in step_values_of(tree)], columns.schema)
    operands = {name: PolarsLowering(measures[name], {}, values).operand(tree) for name, tree in trees.items()}
    readers = {each.sql: (of.dtype, reader(each, columns, steps, of.dtype)) for each, of in values.items()}
    return Measures(operands, readers)
