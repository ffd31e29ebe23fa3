"""What an expression says of a match: terms such as ``avg(probe.amount)`` or ``a.at``, and the columns they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import partial
from typing import Any

import polars as pl
from sqlglot import exp

from headrace.errors import DefinitionError
from headrace.expressions import RowExpression, parse_aggregate
from headrace.expressions.operands import LARGEST_PRECISION, fits
from headrace.expressions.rows import row_expression
from headrace.operators.patterns.matcher import TIME, VALUES, Node, Row

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
    *(exp.Mul, exp.Neg, exp.Abs, exp.Upper, exp.Lower, exp.Length),
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


def getter(term: Term, columns: Columns, steps: Sequence[str]) -> Getter:
    """How a term is computed from the rows of a match."""
    number = None if term.step is None else steps.index(term.step)
    if term.function == ELAPSED:
        return _since_start if number is None else partial(_since_step, number)
    assert number is not None  # for the type checker: only elapsed() has no step
    if term.argument is None:
        return partial(_row_count, number)
    place = columns.place(term.argument)
    if term.function == "last":
        return partial(_last, number, place)
    if term.function == "first":
        return partial(_first, number, place)
    return partial(_aggregated, number, place, _AGGREGATES[term.function], term.type(columns.schema))


def _since_start(row: Row | None, node: Node | None) -> float | None:
    if node is None:
        return 0.0
    last, first = node[0], node
    while first[2] is not None:
        first = first[2]
    return float(((last if row is None else row)[TIME] - first[0][TIME]) / 1_000_000)


def _since_step(step: int, row: Row | None, node: Node | None) -> float | None:
    last = None if node is None else node[0]
    while node is not None and node[1] != step:
        node = node[2]
    here = last if row is None else row
    return None if node is None or here is None else float((here[TIME] - node[0][TIME]) / 1_000_000)


def _row_count(step: int, row: Row | None, node: Node | None) -> int:
    count = 0
    while node is not None:
        count += node[1] == step
        node = node[2]
    return count


def _last(step: int, place: int, row: Row | None, node: Node | None) -> Any:
    while node is not None:
        if node[1] == step:
            return node[0][place]
        node = node[2]
    return None


def _first(step: int, place: int, row: Row | None, node: Node | None) -> Any:
    value = None
    while node is not None:
        if node[1] == step:
            value = node[0][place]
        node = node[2]
    return value


def _aggregated(
    step: int,
    place: int,
    aggregate: Callable[[list[Any], pl.DataType], Any],
    dtype: pl.DataType,
    row: Row | None,
    node: Node | None,
) -> Any:
    values = []
    while node is not None:
        if node[1] == step and node[0][place] is not None:
            values.append(node[0][place])
        node = node[2]
    values.reverse()
    return aggregate(values, dtype)


def _sum(values: list[Any], dtype: pl.DataType) -> Any:
    if not values:
        return None
    with localcontext(prec=2 * LARGEST_PRECISION):
        total = sum(values)
    if dtype == pl.Int64():
        return total if fits(total, dtype) else None
    return _rounded(Decimal(total), dtype) if isinstance(dtype, pl.Decimal) else float(total)


def _average(values: list[Any], dtype: pl.DataType) -> Any:
    if not values:
        return None
    if not isinstance(dtype, pl.Decimal):
        return float(sum(values)) / len(values)
    with localcontext(prec=2 * LARGEST_PRECISION):
        return _rounded(Decimal(sum(values)) / len(values), dtype)


def _rounded(value: Decimal, dtype: pl.Decimal) -> Decimal | None:
    with localcontext(prec=2 * LARGEST_PRECISION):
        rounded = value.quantize(Decimal(1).scaleb(-dtype.scale), rounding=ROUND_HALF_UP)
    return rounded if abs(rounded.scaleb(dtype.scale)) < 10**dtype.precision else None


def _largest_last(value: Any) -> tuple[bool, Any]:
    # NaN is larger than every number, as in Spark.
    return value != value, value


def _least(values: list[Any], dtype: pl.DataType) -> Any:
    return min(values, key=_largest_last, default=None)


def _greatest(values: list[Any], dtype: pl.DataType) -> Any:
    return max(values, key=_largest_last, default=None)


def _count(values: list[Any], dtype: pl.DataType) -> int:
    return len(values)


_AGGREGATES: Mapping[str, Callable[[list[Any], pl.DataType], Any]] = {
    "count": _count,
    "sum": _sum,
    "avg": _average,
    "min": _least,
    "max": _greatest,
}
