"""A step's condition: the part over the row alone, which is computed as a column, and the part over the match."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.errors import DefinitionError
from headrace.expressions import RowExpression
from headrace.expressions.rows import check_condition, read, row_expression
from headrace.operators.patterns.evaluation import Evaluation
from headrace.operators.patterns.matcher import Condition
from headrace.operators.patterns.terms import Columns, term_of


@dataclass(frozen=True, slots=True)
class StepCondition:
    """A condition, split at its topmost ANDs.

    >>> given = parse_step_condition("amount > 100 AND amount > 10 * avg(probe.amount)", ["probe"])
    >>> [part.text for part in given.of_row], [part.sql() for part in given.of_match]
    (['amount > 100'], ['amount > 10 * AVG(probe.amount)'])
    """

    text: str
    of_row: tuple[RowExpression, ...]
    of_match: tuple[exp.Expr, ...]

    def steps(self, known: Iterable[str]) -> set[str]:
        """The steps that the condition reads."""
        found = (term_of(part, known, self.text) for each in self.of_match for part in each.walk())
        return {term.step for term in found if term is not None and term.step is not None}

    def bound(self, columns: Columns, steps: Sequence[str]) -> Condition | None:
        """The part over the match as a function; None when there is none."""
        for part in self.of_row:
            for column in part.node.find_all(exp.Column):
                if len(column.parts) > 1 and column.parts[0].name not in columns.schema:
                    raise DefinitionError(
                        "STEP_UNKNOWN",
                        f"'{self.text}': there is no step {column.parts[0].name!r} that takes rows. "
                        f"Steps: {', '.join(steps)}.",
                    )
            check_condition(part, columns.schema)
        if not self.of_match:
            return None
        whole, *others = self.of_match
        for other in others:
            whole = exp.And(this=whole, expression=other)
        return Evaluation(self.text, steps, columns).condition(whole)


def parse_step_condition(text: str | None, steps: Sequence[str]) -> StepCondition:
    """Read a condition; no text is met by every row."""
    if text is None:
        return StepCondition("", (), ())
    of_row: list[RowExpression] = []
    of_match: list[exp.Expr] = []
    for part in _parts(read(text)):
        if any(term_of(each, steps, text) is not None for each in part.walk()):
            of_match.append(part)
        else:
            of_row.append(row_expression(part, part.sql(dialect="spark")))
    return StepCondition(text, tuple(of_row), tuple(of_match))


def _parts(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Paren):
        return _parts(node.this)
    if isinstance(node, exp.And):
        return [*_parts(node.this), *_parts(node.expression)]
    return [node]
