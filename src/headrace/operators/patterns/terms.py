"""What an expression says of a match: terms such as ``avg(probe.amount)`` or ``a.at``, and the columns they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from sqlglot import exp

from headrace.errors import DefinitionError
from headrace.expressions import RowExpression, parse_aggregate
from headrace.expressions.rows import row_expression
from headrace.operators.patterns.matcher import VALUES, Node, Row

Getter = Callable[[Row | None, Node | None], Any]
"""The value of a term for a row that is looked at and what has been matched before it."""

ELAPSED = "elapsed"
_FUNCTIONS: Mapping[type[exp.Expr], str] = {
    exp.First: "first",
    exp.Last: "last",
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
# Null where an argument is null, so that they say the same of a missing row whether computed with it or afterwards.
_STRICT = (
    *(exp.Column, exp.Dot, exp.Identifier, exp.Literal, exp.Boolean, exp.Paren, exp.Cast, exp.DataType),
    *(exp.DataTypeParam, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.Not, exp.Add, exp.Sub),
    *(exp.Mul, exp.Neg, exp.Abs, exp.Like, exp.Upper, exp.Lower, exp.Length),
)
LISTED_TERMS = "a.x, first(a.x), last(a.x), count(a.*), count(a.x), sum(a.x), avg(a.x), min(a.x), max(a.x), elapsed()"


@dataclass(frozen=True, slots=True)
class Term:
    """A function over the rows that a step has taken."""

    function: str
    step: str | None
    """None for ``elapsed()``, which counts from the first row."""
    argument: RowExpression | None
    """What is computed of each row, without the step's name; None for ``count(a.*)`` and ``elapsed``."""

    @property
    def text(self) -> str:
        """The term in words; equal terms have equal texts."""
        if self.function == ELAPSED:
            return f"elapsed({self.step or ''})"
        return f"{self.function}({self.step}.{'*' if self.argument is None else self.argument.text})"

    def type(self, schema: Mapping[str, pl.DataType]) -> pl.DataType:
        """The type of the value."""
        self._check_seen(schema)
        if self.function == ELAPSED:
            return pl.Float64()
        if self.argument is None or self.function == "count":
            return pl.Int64()
        if self.function in ("sum", "avg"):
            return parse_aggregate(f"{self.function}({self.argument.text})", name="term").result_type(schema)
        dtype = self.argument.type(schema)
        if self.function in ("min", "max") and dtype.is_nested():
            raise DefinitionError(
                "EXPRESSION_TYPE", f"'{self.function}({self.argument.text})': {dtype} has no order. Use a field of it."
            )
        return dtype

    def _check_seen(self, schema: Mapping[str, pl.DataType]) -> None:
        """Refuse a field of a struct column that has the step's name, which stands for the step."""
        column = None if self.step is None else schema.get(self.step)
        if self.argument is None or not isinstance(column, pl.Struct):
            return
        for name in sorted(self.argument.columns - schema.keys()):
            if name in dict(column):
                raise DefinitionError(
                    "STEP_HIDES_COLUMN",
                    f"'{self.step}.{name}' is column {name!r} of a row that step {self.step!r} took, and there is no "
                    f"such column: the step's name hides the column {self.step!r}. Rename the step, or write "
                    f"'{self.step}.{self.step}.{name}' for rows that it took.",
                )


def term_of(node: exp.Expr, steps: Iterable[str], text: str) -> Term | None:
    """The term that a syntax tree is as a whole, or None.

    >>> from headrace.expressions.rows import read
    >>> term_of(read("sum(b.price * b.amount)"), ["a", "b"], "").argument.text
    'price * amount'
    """
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == ELAPSED:
        return _elapsed(node, steps, text)
    function = _FUNCTIONS.get(type(node))
    inner = node if function is None else node.this
    if function is None and not (isinstance(node, exp.Column) or _is_of_one_step(node, steps)):
        return None
    if isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
        if function != "count":
            return None
        return Term("count", _known(inner.table, steps, text), None)
    owners = {_owner(column, steps) for column in inner.find_all(exp.Column)}
    if function is None and owners <= {None}:
        return None
    for column in inner.find_all(exp.Column):
        if len(column.parts) > 1:
            _known(column.parts[0].name, steps, text)
    if len(owners) != 1 or None in owners:
        raise DefinitionError(
            "STEP_MISSING",
            f"'{text}': '{node.sql(dialect='spark')}' must say of which one step it is, as in {LISTED_TERMS}. "
            f"Steps: {', '.join(steps)}.",
        )
    bare = inner.transform(_without_step)
    return Term(function or "last", owners.pop(), row_expression(bare, bare.sql(dialect="spark")))


def _elapsed(node: exp.Anonymous, steps: Iterable[str], text: str) -> Term:
    if not node.expressions:
        return Term(ELAPSED, None, None)
    step = node.expressions[0]
    if len(node.expressions) > 1 or not isinstance(step, exp.Column) or len(step.parts) > 1:
        raise DefinitionError("ELAPSED_OF", f"'{text}': write elapsed() or elapsed(step).")
    return Term(ELAPSED, _known(step.name, steps, text), None)


def _known(step: str, steps: Iterable[str], text: str) -> str:
    if step not in steps:
        raise DefinitionError("STEP_UNKNOWN", f"'{text}': there is no step {step!r}. Steps: {', '.join(steps)}.")
    return step


def _owner(column: exp.Column, steps: Iterable[str]) -> str | None:
    """The step whose row a column is of, or None for the row that is looked at."""
    first = column.parts[0].name
    return first if len(column.parts) > 1 and first in steps else None


def _is_of_one_step(node: exp.Expr, steps: Iterable[str]) -> bool:
    """Whether a tree computes something of one step's last row alone, so that it can be computed with that row."""
    if not all(isinstance(part, _STRICT) for part in node.walk()):
        return False
    owners = {_owner(column, steps) for column in node.find_all(exp.Column)}
    return len(owners) == 1 and None not in owners


def _without_step(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Column) and len(node.parts) > 1:
        first, *rest = (part.copy() for part in node.parts[1:])
        return exp.Dot.build([exp.Column(this=first), *rest]) if rest else exp.Column(this=first)
    return node


@dataclass(slots=True)
class Columns:
    """The columns that travel with each row because terms or conditions read them, each computed once."""

    schema: Mapping[str, pl.DataType]
    expressions: dict[str, RowExpression] = field(default_factory=dict)

    def place(self, expression: RowExpression) -> int:
        """Where a row holds the value of an expression."""
        _ = expression.type(self.schema)
        known = list(self.expressions)
        if expression.text not in self.expressions:
            self.expressions[expression.text] = expression
            known.append(expression.text)
        return VALUES + known.index(expression.text)

    @property
    def types(self) -> list[pl.DataType]:
        """The type of each column."""
        return [expression.type(self.schema) for expression in self.expressions.values()]


def physical(dtype: pl.DataType) -> pl.DataType:
    """The type in which a value is kept while matching: times as whole numbers, which Python handles much faster."""
    if isinstance(dtype, pl.Datetime | pl.Duration):
        return pl.Int64()
    return pl.Int32() if dtype == pl.Date() else dtype
