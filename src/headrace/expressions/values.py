"""Values: columns, literals, choices, arithmetic, casts and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import polars as pl
from polars.datatypes import DataTypeClass
from sqlglot import exp

from headrace.errors import DefinitionError
from headrace.expressions.conditions import compare
from headrace.expressions.listed import unsupported
from headrace.expressions.operands import Operand, common_type, fits, is_float, is_integer, is_number, moment, number
from headrace.schemas import polars_type, type_of

if TYPE_CHECKING:
    from headrace.expressions.translation import Scope, Translation


def _column(scope: Scope, node: exp.Expr) -> Operand:
    assert isinstance(node, exp.Column | exp.Dot)  # as listed below; only these have parts
    names = [part.name for part in node.parts]
    if names[0] not in scope.schema:
        existing = ", ".join(scope.schema)
        raise DefinitionError(
            "COLUMN_UNKNOWN", f"'{scope.text}': there is no column '{names[0]}'. Existing columns: {existing}."
        )
    operand = Operand(pl.col(names[0]), scope.schema[names[0]])
    for name in names[1:]:
        fields = dict(operand.dtype) if isinstance(operand.dtype, pl.Struct) else {}
        if name not in fields:
            existing = ", ".join(fields) or f"none, it is {operand.dtype}"
            path = ".".join(names)
            raise DefinitionError(
                "COLUMN_UNKNOWN", f"'{scope.text}': '{path}' has no field '{name}'. Existing fields: {existing}."
            )
        operand = Operand(operand.value.struct.field(name), _instance(fields[name]))
    return operand


def _instance(dtype: pl.DataType | DataTypeClass) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()


def _literal(scope: Scope, node: exp.Expr) -> Operand:
    if node.is_string:
        return Operand(pl.lit(node.this, dtype=pl.String), pl.String())
    return _number(scope, node, node.this)


def _number(scope: Scope, node: exp.Expr, text: str) -> Operand:
    operand = number(text)
    if operand is None:
        raise scope.wrong_type(
            node,
            "the number is outside the range of Spark's numbers",
            "Use at most 38 digits, or a DOUBLE up to 1.79e308.",
        )
    return operand


def _boolean(scope: Scope, node: exp.Expr) -> Operand:
    return Operand(pl.lit(bool(node.this), dtype=pl.Boolean), pl.Boolean())


def _null(scope: Scope, node: exp.Expr) -> Operand:
    return Operand(pl.lit(None), pl.Null())


def _paren(scope: Scope, node: exp.Expr) -> Operand:
    return scope.operand(node.this)


def _case(scope: Scope, node: exp.Expr) -> Operand:
    branches = node.args["ifs"]
    if node.this is None:
        conditions = [scope.condition(branch.this) for branch in branches]
    else:
        conditions = [compare(scope, node, exp.EQ, node.this, branch.this).value for branch in branches]
    default = node.args.get("default") or exp.Null()
    return _choose(scope, node, conditions, [*(branch.args["true"] for branch in branches), default])


def _if(scope: Scope, node: exp.Expr) -> Operand:
    if node.args.get("false") is None:
        raise unsupported(scope.text, "IF without a third argument", "Write IF(condition, value, NULL).")
    return _choose(scope, node, [scope.condition(node.this)], [node.args["true"], node.args["false"]])


def _choose(scope: Scope, node: exp.Expr, conditions: list[pl.Expr], parts: list[exp.Expr]) -> Operand:
    *values, default = scope.same_type(node, parts)
    chosen = default.value
    for condition, value in zip(reversed(conditions), reversed(values), strict=True):
        chosen = pl.when(condition).then(value.value).otherwise(chosen)
    return Operand(chosen, default.dtype)


def _coalesce(scope: Scope, node: exp.Expr) -> Operand:
    operands = scope.same_type(node, [node.this, *node.expressions])
    return Operand(pl.coalesce([operand.value for operand in operands]), operands[0].dtype)


_ARITHMETIC: Mapping[type[exp.Expr], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    exp.Add: pl.Expr.add,
    exp.Sub: pl.Expr.sub,
    exp.Mul: pl.Expr.mul,
}


def _arithmetic(scope: Scope, node: exp.Expr) -> Operand:
    left, right = scope.operand(node.this), scope.operand(node.expression)
    for operand in (left, right):
        if not is_number(operand.dtype):
            raise scope.wrong_type(node, f"{operand.dtype} is not a number", "Use + - * on numbers.")
    if not is_float(left.dtype) and not is_float(right.dtype):
        reason = f"{left.dtype} with {right.dtype} can overflow, and Spark would stop the query"
        raise scope.wrong_type(node, reason, "Cast one side, as in CAST(x AS DOUBLE).")
    dtype = common_type(left.dtype, right.dtype) or pl.Float64()
    result = _ARITHMETIC[type(node)](left.to(dtype).value, right.to(dtype).value)
    constant_left = node.this.find(exp.Column) is None
    if isinstance(node, exp.Add) and (constant_left or node.expression.find(exp.Column) is None):
        result = _positive_zero(result, dtype)
    if isinstance(node, exp.Sub) and constant_left:
        result = _positive_zero(result, dtype)
    return Operand(result, dtype)


def _positive_zero(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    # Polars takes x + 0.0 for x and 0.0 - x for -x, which differ from Spark in the sign of zero.
    return pl.when(value == 0.0).then(pl.lit(0.0, dtype=dtype)).otherwise(value)


def _negative(scope: Scope, node: exp.Expr) -> Operand:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return _number(scope, node, f"-{inner.this}")
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and not inner.this.is_string:
        return _cast_to(scope, node, _number(scope, node, f"-{inner.this.this}"), inner.to)
    operand = scope.operand(inner)
    if not is_float(operand.dtype):
        reason = f"the negative of {operand.dtype} can overflow, and Spark would stop the query"
        raise scope.wrong_type(node, reason, "Use -CAST(x AS DOUBLE).")
    return Operand(operand.value.neg(), operand.dtype)


def _absolute(scope: Scope, node: exp.Expr) -> Operand:
    operand = scope.operand(node.this)
    if not is_float(operand.dtype):
        raise scope.wrong_type(node, f"ABS of {operand.dtype} is not listed", "Use ABS(CAST(x AS DOUBLE)).")
    return Operand(operand.value.abs(), operand.dtype)


def _cast(scope: Scope, node: exp.Expr) -> Operand:
    inner = node.this
    if isinstance(inner, exp.Literal) and inner.is_string:
        dtype = polars_type(type_of(node.args["to"], scope.text), scope.text)
        operand = moment(inner.this, dtype)
        if operand is None:
            reason = f"the text '{inner.this}' cannot be read as {dtype} in every session"
            advice = "Write DATE '2026-01-31', TIMESTAMP '2026-01-31T09:00:00Z' or TIMESTAMP_NTZ '2026-01-31T09:00:00'."
            raise scope.wrong_type(node, reason, advice)
        return operand
    return _cast_to(scope, node, scope.operand(inner), node.args["to"])


def _cast_to(scope: Scope, node: exp.Expr, operand: Operand, to: exp.DataType) -> Operand:
    dtype = polars_type(type_of(to, scope.text), scope.text)
    number_to_double = dtype == pl.Float64() and is_number(operand.dtype)
    wider_integer = is_integer(operand.dtype) and is_integer(dtype) and common_type(operand.dtype, dtype) == dtype
    if operand.dtype == dtype or operand.dtype == pl.Null() or number_to_double or wider_integer:
        return operand.to(dtype)
    literal = node.find(exp.Literal)
    if is_integer(dtype) and literal is not None and isinstance(literal.parent, exp.Cast):
        value = int(literal.this) * (-1 if isinstance(node, exp.Neg) else 1)
        if is_integer(operand.dtype) and fits(value, dtype):
            return operand.to(dtype)
    reason = f"a cast from {operand.dtype} to {dtype} can fail or lose digits, and Spark would stop the query"
    raise scope.wrong_type(node, reason, "Cast numbers to DOUBLE, or integers to wider integers.")


def _text(compute: Callable[[pl.Expr], pl.Expr], dtype: pl.DataType) -> Callable[[Scope, exp.Expr], Operand]:
    def translate(scope: Scope, node: exp.Expr) -> Operand:
        operand = scope.operand(node.this)
        if operand.dtype != pl.String():
            raise scope.wrong_type(node, f"{operand.dtype} is not a string", "Use a string column.")
        return Operand(compute(operand.value), dtype)

    return translate


VALUES: Mapping[type[exp.Expr], Translation] = {
    exp.Column: _column,
    exp.Dot: _column,
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Paren: _paren,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Neg: _negative,
    exp.Abs: _absolute,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Upper: _text(lambda value: value.str.to_uppercase(), pl.String()),
    exp.Lower: _text(lambda value: value.str.to_lowercase(), pl.String()),
    exp.Length: _text(lambda value: value.str.len_chars().cast(pl.Int32), pl.Int32()),
}
