"""Expressions over a row and the rows that the steps of a pattern have matched, such as ``price > avg(a.price)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.errors import DefinitionError
from headrace.expressions import nodes
from headrace.expressions.parser import CALLS, ExpressionParser, read_sql, sql_of, unsupported

SUPPORTED_STEP_VALUES = (
    "a.x, struct(a.*), first(a.x), last(a.x), count(a.*), count(a.x), sum(a.x), avg(a.x), min(a.x), max(a.x), elapsed()"
)
_STEP_FUNCTIONS: Mapping[type[exp.Expr], nodes.StepFunction] = {
    exp.First: "first",
    exp.Last: "last",
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
# Null where an argument is null, so computed with a step's last row they give what they give afterwards without one.
_NULL_IN_NULL_OUT: tuple[type[exp.Expr], ...] = (
    *(exp.Column, exp.Dot, exp.Identifier, exp.Literal, exp.Boolean, exp.Paren, exp.Cast, exp.DataType),
    *(exp.DataTypeParam, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.Not, exp.Add, exp.Sub),
    *(exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.Like, exp.Concat, exp.DPipe, exp.TsOrDsToDate, exp.Var),
    *CALLS,
)


def parse_step_expression(text: str, steps: Sequence[str]) -> nodes.Expression:
    """The tree of an expression over a row and the rows that the steps of a pattern have matched.

    >>> parse_step_expression("sum(b.price * b.amount)", ["a", "b"]).argument.sql
    'price * amount'
    """
    return _StepExpressionParser(text, tuple(steps)).expression(read_sql(text))


@dataclass(frozen=True)
class _StepExpressionParser(ExpressionParser):
    """The parser of a pattern's text, whose parts may read the rows of its steps."""

    steps: tuple[str, ...]

    def expression(self, node: exp.Expr) -> nodes.Expression:
        value = self._step_value(node) if self.steps else None
        return super().expression(node) if value is None else value

    def _step_value(self, node: exp.Expr) -> nodes.StepValue | None:
        """The value of a step's rows that a syntax tree is as a whole, or None."""
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "elapsed":
            return self._elapsed(node)
        function = _STEP_FUNCTIONS.get(type(node))
        inner = node if function is None else node.this
        # count() and the like have no argument at all, so they name no step.
        columns = [] if inner is None else list(inner.find_all(exp.Column))
        owners = {self._owner(column) for column in columns}
        of_one_step = len(owners) == 1 and None not in owners
        # What reads one step's last row alone can be computed with that row.
        kept = all(isinstance(part, _NULL_IN_NULL_OUT) for part in node.walk()) or _is_whole_row(node)
        if function is None and not (of_one_step and kept):
            return None
        if function is not None and any(node.args.get(name) for name in node.args if name not in ("this", "big_int")):
            raise unsupported(self.text, f"'{sql_of(node)}'", f"For a step, use one of {SUPPORTED_STEP_VALUES}.")
        if function == "count" and isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
            step = self._known_step(inner.table)
            return nodes.StepValue(f"count({step}.*)", "count", step, None)
        for column in columns:
            if len(column.parts) > 1:
                self._known_step(column.parts[0].name)
        if not of_one_step:
            raise DefinitionError(
                "STEP_MISSING",
                f"'{self.text}': '{sql_of(node)}' must name exactly one step, as in {SUPPORTED_STEP_VALUES}. "
                f"Steps: {', '.join(self.steps)}.",
            )
        step, function = str(owners.pop()), function or "last"
        argument = ExpressionParser(self.text).expression(inner.transform(_without_step))
        return nodes.StepValue(f"{function}({step}.{argument.sql})", function, step, argument)

    def _elapsed(self, node: exp.Anonymous) -> nodes.StepValue:
        if not node.expressions:
            return nodes.StepValue("elapsed()", "elapsed", None, None)
        step = node.expressions[0]
        if len(node.expressions) > 1 or not isinstance(step, exp.Column) or len(step.parts) > 1:
            raise DefinitionError("ELAPSED_OF", f"'{self.text}': write elapsed() or elapsed(step).")
        known = self._known_step(step.name)
        return nodes.StepValue(f"elapsed({known})", "elapsed", known, None)

    def _known_step(self, step: str) -> str:
        if step not in self.steps:
            steps = ", ".join(self.steps)
            raise DefinitionError("STEP_UNKNOWN", f"'{self.text}': there is no step {step!r}. Steps: {steps}.")
        return step

    def _owner(self, column: exp.Column) -> str | None:
        """The step whose rows a column is read of, or None for the current row."""
        first = column.parts[0].name
        return first if len(column.parts) > 1 and first in self.steps else None


def _is_whole_row(node: exp.Expr) -> bool:
    return isinstance(node, exp.Struct) and all(isinstance(part.this, exp.Star) for part in node.expressions)


def _without_step(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Column) and len(node.parts) > 1:
        first, *rest = (part.copy() for part in node.parts[1:])
        return exp.Dot.build([exp.Column(this=first), *rest]) if rest else exp.Column(this=first)
    return node
