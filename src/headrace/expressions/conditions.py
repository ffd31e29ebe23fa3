"""Conditions: comparisons, and what SQL makes of true, false and null."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from headrace.expressions.listed import unsupported
from headrace.expressions.operands import Operand

if TYPE_CHECKING:
    from headrace.expressions.translation import Scope, Translation

_COMPARISONS: Mapping[type[exp.Expr], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    exp.EQ: pl.Expr.eq,
    exp.NEQ: pl.Expr.ne,
    exp.LT: pl.Expr.lt,
    exp.LTE: pl.Expr.le,
    exp.GT: pl.Expr.gt,
    exp.GTE: pl.Expr.ge,
    exp.NullSafeEQ: pl.Expr.eq_missing,
}


def _comparison(scope: Scope, node: exp.Expr) -> Operand:
    return compare(scope, node, type(node), node.this, node.expression)


def compare(scope: Scope, node: exp.Expr, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> Operand:
    first, second = scope.same_type(node, [left, right])
    if first.dtype.is_nested():
        raise scope.wrong_type(node, f"{first.dtype} cannot be compared", "Compare its fields.")
    if first.dtype == pl.Null():
        first, second = first.to(pl.Boolean()), second.to(pl.Boolean())
    return Operand(_COMPARISONS[kind](first.value, second.value), pl.Boolean())


def _and(scope: Scope, node: exp.Expr) -> Operand:
    return Operand(scope.condition(node.this) & scope.condition(node.expression), pl.Boolean())


def _or(scope: Scope, node: exp.Expr) -> Operand:
    return Operand(scope.condition(node.this) | scope.condition(node.expression), pl.Boolean())


def _not(scope: Scope, node: exp.Expr) -> Operand:
    return Operand(scope.condition(node.this).not_(), pl.Boolean())


def _is(scope: Scope, node: exp.Expr) -> Operand:
    if not isinstance(node.expression, exp.Null):
        raise unsupported(scope.text, f"'{node.sql(dialect='spark')}'")
    return Operand(scope.operand(node.this).value.is_null(), pl.Boolean())


def _in(scope: Scope, node: exp.Expr) -> Operand:
    value, *choices = scope.same_type(node, [node.this, *node.expressions])
    if value.dtype.is_nested():
        raise scope.wrong_type(node, f"{value.dtype} cannot be compared", "Compare its fields.")
    if value.dtype == pl.Null():
        return Operand(pl.lit(None, dtype=pl.Boolean), pl.Boolean())
    return Operand(pl.any_horizontal(value.value.eq(choice.value) for choice in choices), pl.Boolean())


def _between(scope: Scope, node: exp.Expr) -> Operand:
    low = compare(scope, node, exp.GTE, node.this, node.args["low"])
    high = compare(scope, node, exp.LTE, node.this, node.args["high"])
    return Operand(low.value & high.value, pl.Boolean())


_WILD = {"%": ".*", "_": "."}


def _like(scope: Scope, node: exp.Expr) -> Operand:
    text, pattern = scope.operand(node.this), node.expression
    if text.dtype not in (pl.String(), pl.Null()):
        raise scope.wrong_type(node, f"{text.dtype} is not a string", "Use a string column.")
    if not isinstance(pattern, exp.Literal) or not pattern.is_string or "\\" in pattern.this:
        raise unsupported(scope.text, "LIKE with a pattern that is not written out, or that has escapes")
    wanted = "".join(_WILD.get(character) or pl.escape_regex(character) for character in pattern.this)
    matches = text.to(pl.String()).value.str.contains(f"(?s)^{wanted}$")
    return Operand(~matches if node.args.get("negate") else matches, pl.Boolean())


CONDITIONS: Mapping[type[exp.Expr], Translation] = {
    **dict.fromkeys(_COMPARISONS, _comparison),
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
}
