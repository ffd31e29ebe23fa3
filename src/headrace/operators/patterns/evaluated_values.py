"""Values over what has been matched: arithmetic, casts and choices."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from sqlglot import exp

from headrace.expressions.operands import is_float
from headrace.operators.patterns.evaluated_conditions import comparing
from headrace.operators.patterns.terms import Getter

if TYPE_CHECKING:
    from headrace.operators.patterns.evaluation import Compilation, Evaluation


def brought_to(value: Getter, dtype: pl.DataType, shared: pl.DataType) -> Getter:
    """A value of one type as a value of the type that it is compared or computed in."""
    if dtype == shared or not is_float(shared):
        return value

    def as_float(row: Any, node: Any) -> float | None:
        given = value(row, node)
        return None if given is None else float(given)

    return as_float


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
    return brought_to(of.compiled(node.this), of.type_of(node.this), of.type_of(node))


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
        conditions = [comparing(of, exp.EQ, node.this, branch.this) for branch in branches]
    default = node.args.get("default") or exp.Null()
    return _choice(of, conditions, [*(branch.args["true"] for branch in branches), default])


def _if(of: Evaluation, node: exp.Expr) -> Getter:
    return _choice(of, [of.compiled(node.this)], [node.args["true"], node.args["false"]])


VALUES: Mapping[type[exp.Expr], Compilation] = {
    exp.Paren: _paren,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Neg: _changed(operator.neg),
    exp.Abs: _changed(abs),
    exp.Upper: _changed(str.upper),
    exp.Lower: _changed(str.lower),
    exp.Length: _changed(len),
    exp.Cast: _cast,
    exp.Coalesce: _coalesce,
    exp.Case: _case,
    exp.If: _if,
}
