"""Expressions over one row, computed by Polars with Spark's meaning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, assert_never

import polars as pl
from polars.datatypes import DataTypeClass

from headrace.errors import DefinitionError
from headrace.expressions import nodes
from headrace.expressions.arithmetic import (
    arithmetic_of_columns,
    as_number,
    can_cast,
    cast_of_columns,
    exact_type,
    result_type,
)
from headrace.expressions.functions import FUNCTIONS, Argument, type_fits
from headrace.expressions.operands import Operand, Schema, common_type, digits_of
from headrace.expressions.parser import ExpressionParser, read_sql, wrong_type

if TYPE_CHECKING:
    from sqlglot import exp


EVERY_COLUMN = "*"


def named_columns(read: Collection[str], schema: Schema) -> set[str]:
    """The names of the columns that expressions read of rows of a schema; those it lacks too.

    >>> sorted(named_columns({"*", "c"}, {"a": pl.Int32(), "b": pl.Int32()}))
    ['a', 'b', 'c']
    """
    return {*(schema if EVERY_COLUMN in read else ()), *read} - {EVERY_COLUMN}


@dataclass(frozen=True, slots=True)
class RowExpression:
    """An expression over one row, parsed but not yet bound to a schema.

    >>> large = parse_row_expression("amount > 100 AND shop IS NOT NULL")
    >>> sorted(large.columns)
    ['amount', 'shop']
    """

    text: str
    tree: nodes.Expression = field(repr=False)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it names, and `EVERY_COLUMN` if it reads all there are."""
        named = frozenset(column.path[0] for column in nodes.columns_of(self.tree))
        return named | {EVERY_COLUMN} if any(isinstance(p, nodes.WholeRow) for p in nodes.walk(self.tree)) else named

    @property
    def name(self) -> str:
        """What SQL would call the result: the column's or field's name, else the text."""
        named = self.tree
        while isinstance(named, nodes.Cast):
            named = named.operand
        return named.path[-1] if isinstance(named, nodes.ColumnRef) else self.text

    def operand(self, schema: Schema, *, exact: bool = False) -> Operand:
        """The Polars expression that computes this over frames of the schema, and the type of the result.

        If ``exact``, arithmetic of whole numbers never overflows: its results are decimals.

        >>> rows = pl.DataFrame({"amount": [5.0, float("nan"), None]})
        >>> large = parse_row_expression("amount > 100").operand(rows.schema)
        >>> rows.select(large.value).to_series().to_list(), large.dtype
        ([False, True, None], Boolean)
        """
        return PolarsLowering(self.text, schema, exact=exact).operand(self.tree)

    def truth(self, schema: Schema) -> pl.Expr:
        """The Polars expression of a condition, which must be BOOLEAN; NULL alone is one too."""
        operand = self.operand(schema)
        if operand.dtype not in (pl.Boolean(), pl.Null()):
            raise DefinitionError(
                "CONDITION_TYPE",
                f"'{self.text}' is {operand.dtype}, not BOOLEAN. Write a comparison, as in 'amount > 0'.",
            )
        return operand.value.cast(pl.Boolean)


def parse_row_expression(text: str) -> RowExpression:
    """Parse an expression over one row."""
    return row_expression(read_sql(text), text)


def row_expression(node: exp.Expr, text: str) -> RowExpression:
    """A part of a larger syntax tree as a row expression."""
    return RowExpression(text, ExpressionParser(text).expression(node))


_COMPARISONS: Mapping[nodes.ComparisonOperator, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": pl.Expr.eq,
    "<>": pl.Expr.ne,
    "<": pl.Expr.lt,
    "<=": pl.Expr.le,
    ">": pl.Expr.gt,
    ">=": pl.Expr.ge,
    "<=>": pl.Expr.eq_missing,
}
_ARITHMETIC = {"+": pl.Expr.add, "-": pl.Expr.sub, "*": pl.Expr.mul}
_KINDS: Mapping[Argument, str] = {
    "text": "a string",
    "integer": "a whole number",
    "day": "a DATE or TIMESTAMP_NTZ",
    "local": "a TIMESTAMP_NTZ",
    "instant": "a TIMESTAMP",
}


@dataclass(frozen=True, slots=True)
class PolarsLowering:
    """Translates a tree to Polars over one schema and checks its types; ``text`` is quoted in errors."""

    text: str
    schema: Schema
    given: Mapping[Any, Operand] = field(default_factory=dict)
    """Nodes that are known: values of matched rows, or results of aggregates."""
    exact: bool = False
    """Whether sums, differences and products of whole numbers are decimals, which do not overflow."""

    def operand(self, node: nodes.Expression) -> Operand:
        if node in self.given:
            return self.given[node]
        if self.exact and not _may_be_exact(node):
            return replace(self, exact=False).operand(node)
        match node:
            case nodes.ColumnRef():
                return self._column(node)
            case nodes.WholeRow():
                return self._struct(self.schema, [Operand(pl.col(name), self.schema[name]) for name in self.schema])
            case nodes.StructOf():
                return self._struct(node.names, [self.operand(value) for value in node.values])
            case nodes.Constant():
                value = pl.lit(None) if node.value is None else pl.lit(node.value, dtype=node.dtype)
                return Operand(value, node.dtype)
            case nodes.StepValue():
                return self.given[node]
            case nodes.Comparison():
                left, right = self._comparable(node)
                return Operand(_COMPARISONS[node.operator](left.value, right.value), pl.Boolean())
            case nodes.Logical():
                one, other = self.condition(node.left), self.condition(node.right)
                return Operand(one & other if node.operator == "and" else one | other, pl.Boolean())
            case nodes.InList():
                given, *choices = self._comparable(node)
                return Operand(pl.any_horizontal(given.value.eq(choice.value) for choice in choices), pl.Boolean())
            case nodes.Like():
                return self._like(node)
            case nodes.Arithmetic():
                return self._arithmetic(node)
            case nodes.FunctionCall():
                return self._function(node)
            case nodes.Cast():
                return self._cast(node)
            case nodes.Coalesce():
                operands = self._same_type(node, node.operands)
                return Operand(pl.coalesce([operand.value for operand in operands]), operands[0].dtype)
            case nodes.CaseWhen():
                return self._case(node)
            case _:
                assert_never(node)

    def condition(self, node: nodes.Expression) -> pl.Expr:
        """The Polars expression of a node that must be BOOLEAN."""
        operand = self.operand(node)
        if operand.dtype not in (pl.Boolean(), pl.Null()):
            raise self._wrong(node, f"it is {operand.dtype} where a condition is needed", "Write a comparison.")
        return operand.to(pl.Boolean()).value

    def _wrong(self, node: nodes.Expression, reason: str, advice: str) -> DefinitionError:
        return wrong_type(self.text, node.sql, reason, advice)

    def _same_type(self, node: nodes.Expression, parts: Sequence[nodes.Expression]) -> list[Operand]:
        operands = [self.operand(part) for part in parts]
        dtype = operands[0].dtype
        for operand in operands[1:]:
            wider = common_type(dtype, operand.dtype)
            if wider is None:
                raise self._wrong(node, f"{dtype} and {operand.dtype} have no common type", "Use equal types.")
            dtype = wider
        return [operand.to(dtype) for operand in operands]

    def _column(self, node: nodes.ColumnRef) -> Operand:
        column, *fields = node.path
        if column not in self.schema:
            existing = ", ".join(self.schema)
            message = f"'{self.text}': there is no column '{column}'. Existing columns: {existing}."
            raise DefinitionError("COLUMN_UNKNOWN", message)
        operand = Operand(pl.col(column), self.schema[column])
        for name in fields:
            types = dict(operand.dtype) if isinstance(operand.dtype, pl.Struct) else {}
            if name not in types:
                existing = ", ".join(types) or f"none, it is {operand.dtype}"
                path = ".".join(node.path)
                message = f"'{self.text}': '{path}' has no field '{name}'. Existing fields: {existing}."
                raise DefinitionError("COLUMN_UNKNOWN", message)
            operand = Operand(operand.value.struct.field(name), _instance(types[name]))
        return operand

    @staticmethod
    def _struct(names: Iterable[str], operands: Sequence[Operand]) -> Operand:
        fields = dict(zip(names, operands, strict=True))
        value = pl.struct(operand.value.alias(name) for name, operand in fields.items())
        return Operand(value, pl.Struct({name: operand.dtype for name, operand in fields.items()}))

    def _comparable(self, node: nodes.Comparison | nodes.InList) -> list[Operand]:
        operands = self._same_type(node, node.children)
        if operands[0].dtype.is_nested():
            raise self._wrong(node, f"{operands[0].dtype} cannot be compared", "Compare its fields.")
        return [operand.to(pl.Boolean()) if operand.dtype == pl.Null() else operand for operand in operands]

    def _like(self, node: nodes.Like) -> Operand:
        operand = self.operand(node.operand)
        if operand.dtype not in (pl.String(), pl.Null()):
            raise self._wrong(node, f"{operand.dtype} is not a string", "Use a string column.")
        matches = operand.to(pl.String()).value.str.contains(f"(?s)^{node.regex(pl.escape_regex)}$")
        return Operand(~matches if node.negated else matches, pl.Boolean())

    def _number(self, node: nodes.Expression) -> Operand:
        """An operand of arithmetic; there an average of DECIMALs is a DOUBLE, since it is rounded anyway."""
        operand = self.operand(node)
        if isinstance(node, nodes.StepValue) and node.function == "avg" and isinstance(operand.dtype, pl.Decimal):
            return operand.to(pl.Float64())
        return operand

    def _arithmetic(self, node: nodes.Arithmetic) -> Operand:
        left, right = self._number(node.left), self._number(node.right)
        for operand in (left, right):
            if not operand.dtype.is_numeric():
                raise self._wrong(node, f"{operand.dtype} is not a number", "Use + - * / % on numbers.")
        if self.exact or pl.Decimal in (left.dtype, right.dtype):
            left, right = _as_few_digits(node.left, left), _as_few_digits(node.right, right)
        dtype = result_type(node.operator, left.dtype, right.dtype)
        if self.exact and (dtype is None or dtype.is_integer()):
            dtype = exact_type(node.operator, left.dtype, right.dtype)
        if dtype is None:
            reason = f"{left.dtype} {node.operator} {right.dtype} has no exact result"
            if node.operator in "+-*":
                reason = f"{left.dtype} {node.operator} {right.dtype} can have more than 38 digits"
            raise self._wrong(node, reason, "Cast one side, as in CAST(x AS DOUBLE).")
        if node.operator == "/" or not dtype.is_float():
            return Operand(arithmetic_of_columns(node.operator, left, right, dtype), dtype)
        result = _ARITHMETIC[node.operator](left.to(dtype).value, right.to(dtype).value)
        constant_left, constant_right = _is_constant(node.left), _is_constant(node.right)
        if (node.operator == "+" and constant_right) or (node.operator in "+-" and constant_left):
            # Polars takes x + 0.0 for x and 0.0 - x for -x, which differ from Spark in the sign of zero.
            result = pl.when(result == 0.0).then(pl.lit(0.0, dtype=dtype)).otherwise(result)
        return Operand(result, dtype)

    def _function(self, node: nodes.FunctionCall) -> Operand:
        (first, *_) = node.operands
        match node.function:
            case "not":
                return Operand(self.condition(first).not_(), pl.Boolean())
            case "is_null":
                return Operand(self.operand(first).value.is_null(), pl.Boolean())
            case "negative" | "abs":
                return self._number_function(node)
        function, operands = FUNCTIONS[node.function], [self.operand(each) for each in node.operands]
        for operand, wanted in function.arguments(operands):
            if not type_fits(operand.dtype, wanted):
                advice = "Use a string column." if wanted == "text" else "Use another column or function."
                if wanted in ("day", "local") and isinstance(operand.dtype, pl.Datetime):
                    advice = "Its day and hour depend on a zone: compute them with withColumn before the step."
                raise self._wrong(node, f"{operand.dtype} is not {_KINDS[wanted]}", advice)
        return Operand(function.of_columns(*(operand.value for operand in operands)), function.gives)

    def _number_function(self, node: nodes.FunctionCall) -> Operand:
        operand = self._number(node.operands[0])
        dtype = operand.dtype
        if not dtype.is_numeric():
            raise self._wrong(node, f"{dtype} is not a number", "Use a column of numbers.")
        if not dtype.is_integer():
            return Operand(operand.value.abs() if node.function == "abs" else operand.value.neg(), dtype)
        whole = operand.value.cast(pl.Int128)
        if self.exact:
            dtype = pl.Decimal(digits_of(dtype)[0], 0)
        return Operand(as_number(whole.abs() if node.function == "abs" else whole * -1, dtype), dtype)

    def _cast(self, node: nodes.Cast) -> Operand:
        operand, dtype = self.operand(node.operand), node.dtype
        if can_cast(operand.dtype, dtype):
            return Operand(cast_of_columns(operand, dtype), dtype)
        advice = (
            "Cast numbers to numbers, strings to numbers, and whole numbers, DECIMALs, BOOLEANs and DATEs to STRING."
        )
        raise self._wrong(node, f"a cast from {operand.dtype} to {dtype} is not supported", advice)

    def _case(self, node: nodes.CaseWhen) -> Operand:
        conditions = [self.condition(condition) for condition in node.conditions]
        *values, default = self._same_type(node, [*node.values, node.default])
        chosen = default.value
        for condition, value in zip(reversed(conditions), reversed(values), strict=True):
            chosen = pl.when(condition).then(value.value).otherwise(chosen)
        return Operand(chosen, default.dtype)


def _may_be_exact(node: nodes.Expression) -> bool:
    if isinstance(node, nodes.Arithmetic):
        return node.operator in "+-*"
    is_sign = isinstance(node, nodes.FunctionCall) and node.function in ("negative", "abs")
    return is_sign or isinstance(node, nodes.CaseWhen | nodes.Coalesce)


def _as_few_digits(node: nodes.Expression, operand: Operand) -> Operand:
    """A whole number in the text as a decimal with as many digits as it is written with, as in Spark."""
    if not isinstance(node, nodes.Constant) or not operand.dtype.is_integer():
        return operand
    return operand.to(pl.Decimal(len(str(node.value).lstrip("-")), 0))


def _is_constant(node: nodes.Expression) -> bool:
    return not nodes.reads_row(node) and not nodes.step_values_of(node)


def _instance(dtype: pl.DataType | DataTypeClass) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()
