"""Conditions over what has been matched: comparisons, and what SQL makes of true, false and null."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headrace.expressions.operands import is_float
from headrace.operators.patterns.terms import Getter

if TYPE_CHECKING:
    from headrace.operators.patterns.evaluation import Compilation, Evaluation


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


def comparing(of: Evaluation, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> Getter:
    (first, second), dtype = of.alike(left, right)
    compare = (_FLOATS if is_float(dtype) else _OTHERS)[kind]

    def compared(row: Any, node: Any) -> bool | None:
        one, other = first(row, node), second(row, node)
        return None if one is None or other is None else compare(one, other)

    return compared


def _comparison(of: Evaluation, node: exp.Expr) -> Getter:
    return comparing(of, type(node), node.this, node.expression)


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
    first, *others = (comparing(of, exp.EQ, node.this, choice) for choice in node.expressions)
    for other in others:
        first = _any_of(first, other)
    return first


def _between(of: Evaluation, node: exp.Expr) -> Getter:
    low = comparing(of, exp.GTE, node.this, node.args["low"])
    return _all_of(low, comparing(of, exp.LTE, node.this, node.args["high"]))


_WILD = {"%": ".*", "_": "."}


def _like(of: Evaluation, node: exp.Expr) -> Getter:
    value = of.compiled(node.this)
    # That the pattern is a literal has been checked with the types.
    wanted = "".join(_WILD.get(character) or re.escape(character) for character in node.expression.this)
    whole = re.compile(wanted, re.DOTALL).fullmatch

    def alike(row: Any, matched: Any) -> bool | None:
        given = value(row, matched)
        return None if given is None else whole(given) is not None

    return alike


CONDITIONS: Mapping[type[exp.Expr], Compilation] = {
    **dict.fromkeys(_OTHERS, _comparison),
    exp.NullSafeEQ: _null_safe,
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Is: _is_null,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
}
