"""What a match says: SQL text over its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from sqlglot import exp

from headrace.errors import DefinitionError
from headrace.expressions.operands import Operand
from headrace.expressions.rows import read, row_expression
from headrace.expressions.translation import Scope
from headrace.operators.patterns.evaluation import Evaluation
from headrace.operators.patterns.getters import getter
from headrace.operators.patterns.matcher import Node
from headrace.operators.patterns.terms import Columns, Getter, Term, physical


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of a pattern, bound to the columns that travel."""

    names: tuple[str, ...]
    operands: tuple[Operand, ...]
    """Each measure as an expression over the terms."""
    terms: Mapping[str, pl.DataType]
    getters: tuple[Getter, ...]

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The type of each measure."""
        return {name: operand.dtype for name, operand in zip(self.names, self.operands, strict=True)}

    def of(self, matches: Sequence[Node]) -> pl.DataFrame:
        """The measures of matches, each given by its last node."""
        values = {
            name: pl.Series(name, [get(None, node) for node in matches], physical(dtype), strict=True).cast(dtype)
            for (name, dtype), get in zip(self.terms.items(), self.getters, strict=True)
        }
        given = pl.DataFrame(values) if values else pl.DataFrame(height=len(matches))
        return given.select(
            operand.value.cast(operand.dtype).alias(name)
            for name, operand in zip(self.names, self.operands, strict=True)
        )


def bind_measures(measures: Mapping[str, str], columns: Columns, steps: Sequence[str]) -> Measures:
    """Read and bind measures.

    >>> columns = Columns({"amount": pl.Float64()})
    >>> bind_measures({"most": "max(b.amount)", "rows": "count(b.*)"}, columns, ["a", "b"]).schema
    {'most': Float64, 'rows': Int64}
    """
    terms: list[Term] = []
    trees: list[exp.Expr] = []
    for name, text in measures.items():
        evaluation = Evaluation(text, steps, columns, terms)
        tree = evaluation.with_terms(evaluation.computable(read(text)))
        for column in tree.find_all(exp.Column):
            if column.parts[0].name not in evaluation.types:
                raise DefinitionError(
                    "STEP_MISSING",
                    f"measure {name!r}: '{text}' does not say of which step '{column.sql(dialect='spark')}' is. "
                    f"Write it as in '{steps[0]}.{column.name}'. Steps: {', '.join(steps)}.",
                )
        trees.append(row_expression(tree, text).node)
    types = Evaluation("", steps, columns, terms).types
    operands = tuple(Scope(text, types).operand(tree) for text, tree in zip(measures.values(), trees, strict=True))
    return Measures(tuple(measures), operands, types, tuple(getter(term, columns, steps) for term in terms))
