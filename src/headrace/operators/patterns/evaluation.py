"""Conditions over what has been matched, as functions that are called for each candidate row."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from sqlglot import exp

from headrace.expressions.operands import common_type, is_float
from headrace.expressions.rows import row_expression
from headrace.expressions.translation import Scope, unsupported
from headrace.operators.patterns.terms import Columns, Getter, Term, getter, physical, term_of


@dataclass(slots=True)
class Evaluation:
    """Compiles one text; parts of it that read the row alone are columns, parts of one step's rows are terms."""

    text: str
    steps: Sequence[str]
    columns: Columns
    terms: list[Term] = field(default_factory=list)

    def condition(self, node: exp.Expr) -> Getter:
        """A function that tells whether a condition holds: true, false, or None where SQL has null."""
        typed = row_expression(self.with_terms(node), self.text).node
        self._scope().condition(typed)
        return self.compiled(node)

    def with_terms(self, node: exp.Expr) -> exp.Expr:
        """The tree with a column in place of each term."""
        term = term_of(node, self.steps, self.text)
        if term is not None:
            if term not in self.terms:
                self.terms.append(term)
            return exp.column(exp.to_identifier(term.text, quoted=True))
        copied = node.copy()
        for name, value in list(copied.args.items()):
            if isinstance(value, exp.Expr):
                copied.set(name, self.with_terms(value))
            elif isinstance(value, list):
                copied.set(name, [self.with_terms(each) if isinstance(each, exp.Expr) else each for each in value])
        return copied

    @property
    def types(self) -> dict[str, pl.DataType]:
        """The type of each term, by its text, which is also the name of its column."""
        return {term.text: term.type(self.columns.schema) for term in self.terms}

    def _scope(self) -> Scope:
        return Scope(self.text, {**self.columns.schema, **self.types})

    def type_of(self, node: exp.Expr) -> pl.DataType:
        """The type of a part."""
        typed = self.with_terms(node)
        return self._scope().operand(typed).dtype

    def compiled(self, node: exp.Expr) -> Getter:
        """A part of the text as a function."""
        term = term_of(node, self.steps, self.text)
        if term is not None:
            return getter(term, self.columns, self.steps)
        if not self._has_terms(node):
            return self._of_row(node)
        compile_node = _COMPILED.get(type(node))
        if compile_node is None:
            raise unsupported(self.text, f"'{node.sql(dialect='spark')}' over what has been matched")
        return compile_node(self, node)

    def _has_terms(self, node: exp.Expr) -> bool:
        return any(term_of(part, self.steps, self.text) is not None for part in node.walk())

    def _of_row(self, node: exp.Expr) -> Getter:
        if node.find(exp.Column) is None:
            operand = self._scope().operand(node)
            constant = pl.select(operand.value.cast(operand.dtype).cast(physical(operand.dtype))).item()
            return lambda row, matched: constant
        place = self.columns.place(row_expression(node, node.sql(dialect="spark")))
        return lambda row, matched: row[place]  # type: ignore[index]  # a condition is asked of a row

    def alike(self, *nodes: exp.Expr) -> tuple[list[Getter], pl.DataType]:
        """Functions of nodes brought to their common type, and that type."""
        types = [self.type_of(node) for node in nodes]
        shared = types[0]
        for dtype in types[1:]:
            shared = common_type(shared, dtype) or shared
        return [_to(self.compiled(node), dtype, shared) for node, dtype in zip(nodes, types, strict=True)], shared


def _to(value: Getter, dtype: pl.DataType, shared: pl.DataType) -> Getter:
    if dtype == shared or not is_float(shared):
        return value

    def as_float(row: Any, node: Any) -> float | None:
        given = value(row, node)
        return None if given is None else float(given)

    return as_float


def _float_less(left: float, right: float) -> bool:
    # NaN equals itself and is larger than every number, as in Spark.
    return left < right or (left == left and right != right)


def _float_equal(left: float, right: float) -> bool:
    return left == right or (left != left and right != right)


_Compare = Callable[[Any, Any], bool]
_FLOATS: Mapping[type[exp.Expr], _Compare] = {
    exp.EQ: _float_equal,
    exp.NEQ: lambda left, right: not _float_equal(left, right),
    exp.LT: _float_less,
    exp.GTE: lambda left, right: not _float_less(left, right),
    exp.GT: lambda left, right: _float_less(right, left),
    exp.LTE: lambda left, right: not _float_less(right, left),
}
_OTHERS: Mapping[type[exp.Expr], _Compare] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.GTE: operator.ge,
    exp.GT: operator.gt,
    exp.LTE: operator.le,
}


def _comparing(of: Evaluation, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> Getter:
    (first, second), dtype = of.alike(left, right)
    compare = (_FLOATS if is_float(dtype) else _OTHERS)[kind]

    def compared(row: Any, node: Any) -> bool | None:
        one, other = first(row, node), second(row, node)
        return None if one is None or other is None else compare(one, other)

    return compared


def _comparison(of: Evaluation, node: exp.Expr) -> Getter:
    return _comparing(of, type(node), node.this, node.expression)


def _null_safe(of: Evaluation, node: exp.Expr) -> Getter:
    (first, second), dtype = of.alike(node.this, node.expression)
    equal = _float_equal if is_float(dtype) else operator.eq

    def compared(row: Any, matched: Any) -> bool:
        one, other = first(row, matched), second(row, matched)
        return one is other if one is None or other is None else bool(equal(one, other))

    return compared


def _all_of(first: Getter, second: Getter) -> Getter:
    def both(row: Any, node: Any) -> bool | None:
        one = first(row, node)
        if one is False:
            return False
        other = second(row, node)
        return False if other is False else None if one is None or other is None else True

    return both


def _any_of(first: Getter, second: Getter) -> Getter:
    def either(row: Any, node: Any) -> bool | None:
        one = first(row, node)
        if one is True:
            return True
        other = second(row, node)
        return True if other is True else None if one is None or other is None else False

    return either


def _and(of: Evaluation, node: exp.Expr) -> Getter:
    return _all_of(of.compiled(node.this), of.compiled(node.expression))


def _or(of: Evaluation, node: exp.Expr) -> Getter:
    return _any_of(of.compiled(node.this), of.compiled(node.expression))


def _not(of: Evaluation, node: exp.Expr) -> Getter:
    value = of.compiled(node.this)

    def opposite(row: Any, matched: Any) -> bool | None:
        given = value(row, matched)
        return None if given is None else not given

    return opposite


def _is_null(of: Evaluation, node: exp.Expr) -> Getter:
    value = of.compiled(node.this)
    return lambda row, matched: value(row, matched) is None


def _in(of: Evaluation, node: exp.Expr) -> Getter:
    first, *others = (_comparing(of, exp.EQ, node.this, choice) for choice in node.expressions)
    for other in others:
        first = _any_of(first, other)
    return first


def _between(of: Evaluation, node: exp.Expr) -> Getter:
    low = _comparing(of, exp.GTE, node.this, node.args["low"])
    return _all_of(low, _comparing(of, exp.LTE, node.this, node.args["high"]))


def _paren(of: Evaluation, node: exp.Expr) -> Getter:
    return of.compiled(node.this)


_ARITHMETIC: Mapping[type[exp.Expr], Callable[[float, float], float]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}


def _arithmetic(of: Evaluation, node: exp.Expr) -> Getter:
    (first, second), _ = of.alike(node.this, node.expression)
    compute, single = _ARITHMETIC[type(node)], of.type_of(node) == pl.Float32()

    def computed(row: Any, matched: Any) -> float | None:
        one, other = first(row, matched), second(row, matched)
        if one is None or other is None:
            return None
        # Numbers of 32 bits are rounded to them, as Spark does.
        return float(np.float32(compute(one, other))) if single else compute(one, other)

    return computed


def _changed(change: Callable[[Any], Any]) -> Callable[[Evaluation, exp.Expr], Getter]:
    def compile_node(of: Evaluation, node: exp.Expr) -> Getter:
        value = of.compiled(node.this)

        def changed(row: Any, matched: Any) -> Any:
            given = value(row, matched)
            return None if given is None else change(given)

        return changed

    return compile_node


def _cast(of: Evaluation, node: exp.Expr) -> Getter:
    return _to(of.compiled(node.this), of.type_of(node.this), of.type_of(node))


def _coalesce(of: Evaluation, node: exp.Expr) -> Getter:
    values, _ = of.alike(node.this, *node.expressions)

    def first_known(row: Any, matched: Any) -> Any:
        for value in values:
            given = value(row, matched)
            if given is not None:
                return given
        return None

    return first_known


def _choice(of: Evaluation, conditions: list[Getter], nodes: list[exp.Expr]) -> Getter:
    (*values, default), _ = of.alike(*nodes)
    branches = list(zip(conditions, values, strict=True))

    def chosen(row: Any, matched: Any) -> Any:
        for condition, value in branches:
            if condition(row, matched) is True:
                return value(row, matched)
        return default(row, matched)

    return chosen


def _case(of: Evaluation, node: exp.Expr) -> Getter:
    branches = node.args["ifs"]
    if node.this is None:
        conditions = [of.compiled(branch.this) for branch in branches]
    else:
        conditions = [_comparing(of, exp.EQ, node.this, branch.this) for branch in branches]
    default = node.args.get("default") or exp.Null()
    return _choice(of, conditions, [*(branch.args["true"] for branch in branches), default])


def _if(of: Evaluation, node: exp.Expr) -> Getter:
    return _choice(of, [of.compiled(node.this)], [node.args["true"], node.args["false"]])


_COMPILED: Mapping[type[exp.Expr], Callable[[Evaluation, exp.Expr], Getter]] = {
    **dict.fromkeys(_OTHERS, _comparison),
    exp.NullSafeEQ: _null_safe,
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Is: _is_null,
    exp.In: _in,
    exp.Between: _between,
    exp.Paren: _paren,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Neg: _changed(operator.neg),
    exp.Abs: _changed(abs),
    exp.Cast: _cast,
    exp.Coalesce: _coalesce,
    exp.Case: _case,
    exp.If: _if,
}
