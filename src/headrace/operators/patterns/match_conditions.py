"""Conditions of steps: the part over the row becomes a column, the part over the match a function."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, assert_never

import polars as pl

from headrace.errors import DefinitionError
from headrace.expressions import RowExpression, nodes
from headrace.expressions.arithmetic import arithmetic_of_values, cast_of_values
from headrace.expressions.functions import FUNCTIONS, Argument, day_of_value
from headrace.expressions.operands import common_type, fits
from headrace.expressions.rows import PolarsLowering
from headrace.expressions.step_expressions import parse_step_expression
from headrace.operators.patterns.match_values import CarriedColumns, Reader, physical, reader, step_operands


@dataclass(frozen=True, slots=True)
class StepCondition:
    """A condition, split at its topmost ANDs.

    >>> given = parse_step_condition("amount > 100 AND amount > 10 * avg(probe.amount)", ["probe"])
    >>> [part.text for part in given.of_row], [part.sql for part in given.of_match]
    (['amount > 100'], ['amount > 10 * AVG(probe.amount)'])
    """

    text: str
    of_row: tuple[RowExpression, ...]
    of_match: tuple[nodes.Expression, ...]

    def steps(self) -> set[str]:
        values = (value for part in self.of_match for value in nodes.step_values_of(part))
        return {value.step for value in values if value.step is not None}

    def bind(self, columns: CarriedColumns, steps: Sequence[str]) -> Reader | None:
        """The part over the match as a function; None when there is none."""
        for part in self.of_row:
            for column in nodes.columns_of(part.tree):
                if len(column.path) > 1 and column.path[0] not in columns.schema:
                    raise DefinitionError(
                        "STEP_UNKNOWN",
                        f"'{self.text}': there is no step {column.path[0]!r} that matches rows. "
                        f"Steps: {', '.join(steps)}.",
                    )
            part.truth(columns.schema)  # checks the types
        if not self.of_match:
            return None
        whole = reduce(lambda one, other: nodes.Logical(self.text, one, other, "and"), self.of_match)
        return bind_condition(whole, self.text, columns, steps)


def parse_step_condition(text: str | None, steps: Sequence[str]) -> StepCondition:
    """Parse a condition; without a text every row meets it."""
    if text is None:
        return StepCondition("", (), ())
    parts = _conjuncts(parse_step_expression(text, steps))
    of_row = [RowExpression(part.sql, part) for part in parts if not nodes.step_values_of(part)]
    return StepCondition(text, tuple(of_row), tuple(part for part in parts if nodes.step_values_of(part)))


def _conjuncts(tree: nodes.Expression) -> list[nodes.Expression]:
    if isinstance(tree, nodes.Logical) and tree.operator == "and":
        return [*_conjuncts(tree.left), *_conjuncts(tree.right)]
    return [tree]


def bind_condition(tree: nodes.Expression, text: str, columns: CarriedColumns, steps: Sequence[str]) -> Reader:
    """The function that computes a condition: true, false, or None where SQL has null."""
    lowering = PolarsLowering(text, columns.schema, step_operands(nodes.step_values_of(tree), columns.schema))
    lowering.condition(tree)  # checks the types
    return _MatchLowering(lowering, columns, steps).function(tree)


@dataclass(frozen=True, slots=True)
class _MatchLowering:
    """Translates a tree to functions of the current row, whose parts Polars computes, and of rows matched before."""

    types: PolarsLowering
    columns: CarriedColumns
    steps: Sequence[str]

    def function(self, node: nodes.Expression) -> Reader:
        if not nodes.step_values_of(node):
            return self._of_row(node)
        match node:
            case nodes.StepValue():
                return reader(node, self.columns, self.steps, self._type(node))
            case nodes.Comparison():
                return self._compared(node.operator, node.left, node.right)
            case nodes.Logical():
                return _logical(self.function(node.left), self.function(node.right), decisive=node.operator == "or")
            case nodes.Arithmetic():
                return self._arithmetic(node)
            case nodes.FunctionCall():
                return self._function_call(node)
            case nodes.Cast():
                return _of_known(cast_of_values(self._type(node.operand), node.dtype), self.function(node.operand))
            case nodes.Like():
                full_match, negated = re.compile(node.regex(re.escape), re.DOTALL).fullmatch, node.negated
                return _of_known(lambda text: (full_match(text) is None) is negated, self.function(node.operand))
            case nodes.InList():
                # In the type that all of them have in common, as in Spark.
                (operand, *choices), dtype = self._same_type([node.operand, *node.choices])
                equals = _COMPARISONS["="][0 if dtype.is_float() else 1]
                return reduce(partial(_logical, decisive=True), (_of_both(equals, operand, each) for each in choices))
            case nodes.Coalesce():
                operands, _ = self._same_type(node.operands)
                return lambda row, matched: next(
                    (given for each in operands if (given := each(row, matched)) is not None), None
                )
            case nodes.CaseWhen():
                (*values, default), _ = self._same_type([*node.values, node.default])
                branches = list(zip(map(self.function, node.conditions), values, strict=True))
                return lambda row, matched: next(
                    (value for condition, value in branches if condition(row, matched) is True), default
                )(row, matched)
            case nodes.StructOf():
                fields = [(name, self.function(value)) for name, value in zip(node.names, node.values, strict=True)]
                return lambda row, matched: {name: value(row, matched) for name, value in fields}
            case nodes.ColumnRef() | nodes.WholeRow() | nodes.Constant():
                return self._of_row(node)
            case _:
                assert_never(node)

    def _type(self, node: nodes.Expression) -> pl.DataType:
        return self.types.operand(node).dtype

    def _of_row(self, node: nodes.Expression) -> Reader:
        if nodes.reads_row(node):
            place = self.columns.place(node)
            return lambda row, matched: row[place]  # type: ignore[index]  # a condition is asked of a row
        operand = self.types.operand(node)
        constant = pl.select(operand.value.cast(operand.dtype).cast(physical(operand.dtype))).item()
        return lambda row, matched: constant

    def _same_type(self, parts: Sequence[nodes.Expression]) -> tuple[list[Reader], pl.DataType]:
        """Functions of parts converted to their common type, and that type."""
        shared, *others = map(self._type, parts)
        for dtype in others:
            shared = common_type(shared, dtype) or shared
        return [self._converted(part, shared) for part in parts], shared

    def _converted(self, node: nodes.Expression, dtype: pl.DataType) -> Reader:
        """A value in the type that it is compared or computed in; Python needs conversion to floats only."""
        value = self.function(node)
        return value if self._type(node) == dtype or not dtype.is_float() else _of_known(float, value)

    def _compared(self, sign: nodes.ComparisonOperator, left: nodes.Expression, right: nodes.Expression) -> Reader:
        (one, other), dtype = self._same_type((left, right))
        compare = _COMPARISONS[sign][0 if dtype.is_float() else 1]
        return _null_safe(compare, one, other) if sign == "<=>" else _of_both(compare, one, other)

    def _arithmetic(self, node: nodes.Arithmetic) -> Reader:
        dtype = self._type(node)
        left, right = self._converted(node.left, dtype), self._converted(node.right, dtype)
        return _of_both(arithmetic_of_values(node.operator, dtype), left, right)

    def _function_call(self, node: nodes.FunctionCall) -> Reader:
        if node.function == "is_null":
            value = self.function(node.operands[0])
            return lambda row, matched: value(row, matched) is None
        dtype = self._type(node)
        if node.function in ("negative", "abs"):
            change = partial(_signed, operator.neg if node.function == "negative" else abs, dtype)
            return _of_known(change, self._converted(node.operands[0], dtype))
        if node.function == "not":
            return _of_known(operator.not_, self.function(node.operands[0]))
        function = FUNCTIONS[node.function]
        values = [self._argument(each, wanted) for each, wanted in function.arguments(node.operands)]
        return _of_all(function.of_values, values)

    def _argument(self, node: nodes.Expression, wanted: Argument) -> Reader:
        value = self.function(node)
        return _of_known(day_of_value(self._type(node)), value) if wanted == "day" else value


def _of_known(change: Callable[[Any], Any], value: Reader) -> Reader:
    def changed(row: Any, matched: Any) -> Any:
        given = value(row, matched)
        return None if given is None else change(given)

    return changed


def _of_both(compute: Callable[[Any, Any], Any], left: Reader, right: Reader) -> Reader:
    def computed(row: Any, matched: Any) -> Any:
        one, other = left(row, matched), right(row, matched)
        return None if one is None or other is None else compute(one, other)

    return computed


def _signed(change: Callable[[Any], Any], dtype: pl.DataType, value: Any) -> Any:
    changed = change(value)
    return changed if not dtype.is_integer() or fits(changed, dtype) else None


def _of_all(compute: Callable[..., Any], values: Sequence[Reader]) -> Reader:
    def computed(row: Any, matched: Any) -> Any:
        given = [value(row, matched) for value in values]
        return None if None in given else compute(*given)

    return computed


def _null_safe(equal: Callable[[Any, Any], bool], left: Reader, right: Reader) -> Reader:
    def compared(row: Any, matched: Any) -> bool:
        one, other = left(row, matched), right(row, matched)
        return one is other if one is None or other is None else equal(one, other)

    return compared


def _float_less(left: float, right: float) -> bool:
    # NaN equals itself and is larger than every number, as in Spark.
    return left < right or (left == left and right != right)


def _float_equal(left: float, right: float) -> bool:
    return left == right or (left != left and right != right)


_COMPARISONS: Mapping[nodes.ComparisonOperator, tuple[Callable[[Any, Any], bool], Callable[[Any, Any], bool]]] = {
    "=": (_float_equal, operator.eq),
    "<>": (lambda left, right: not _float_equal(left, right), operator.ne),
    "<": (_float_less, operator.lt),
    ">=": (lambda left, right: not _float_less(left, right), operator.ge),
    ">": (lambda left, right: _float_less(right, left), operator.gt),
    "<=": (lambda left, right: not _float_less(right, left), operator.le),
    "<=>": (_float_equal, operator.eq),
}
"""How floats are compared, and everything else."""


def _logical(left: Reader, right: Reader, decisive: bool) -> Reader:
    """AND, which one False decides, or OR, which one True decides."""

    def combined(row: Any, matched: Any) -> Any:
        one = left(row, matched)
        if one is decisive:
            return decisive
        other = right(row, matched)
        return decisive if other is decisive else None if one is None or other is None else not decisive

    return combined
