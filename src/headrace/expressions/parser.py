"""From SQL text in Spark's grammar to the typed tree: what is supported, and the errors for everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import polars as pl
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.errors import DefinitionError
from headrace.expressions import nodes
from headrace.expressions.operands import fits, moment, number
from headrace.schemas import polars_type, type_of

SUPPORTED = (
    "columns and struct fields (a.b), number, string, boolean, NULL, DATE and TIMESTAMP literals, = <> < <= > >= <=>, "
    "AND, OR, NOT, IS [NOT] NULL, [NOT] IN, [NOT] BETWEEN, [NOT] LIKE, CASE, IF, COALESCE, NULLIF, struct(a, b AS c), "
    "struct(*), + - * / % DIV, ABS, CAST between numbers, from strings to numbers and to strings, UPPER, LOWER, "
    "LENGTH, CONCAT, ||, SUBSTRING, LEFT, RIGHT, TRIM, LTRIM, RTRIM, REPLACE, STARTSWITH, ENDSWITH, CONTAINS; YEAR, "
    "QUARTER, MONTH, DAY, DAYOFYEAR, DAYOFWEEK, WEEKOFYEAR, LAST_DAY, DATEDIFF, DATE_ADD and DATE_SUB of a DATE or "
    "TIMESTAMP_NTZ; HOUR, MINUTE, SECOND of a TIMESTAMP_NTZ; UNIX_SECONDS, UNIX_MILLIS, UNIX_MICROS of a TIMESTAMP"
)


def read_sql(text: str) -> exp.Expr:
    """One SQL expression as sqlglot's syntax tree."""
    if not isinstance(text, str):
        raise _unreadable(str(text), f"it is a {type(text).__name__}, not text.")
    try:
        trees = sqlglot.parse(text, dialect="spark")
    except SqlglotError as error:
        raise _unreadable(text, str(error).splitlines()[0]) from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Expr):
        raise _unreadable(text, "it is not exactly one expression")
    if "\\" in text:
        raise unsupported(text, "a backslash", "Write the characters themselves.")
    return trees[0]


def is_supported(node: exp.Expr) -> bool:
    """Whether every node of a syntax tree may stand in an expression over one row."""
    return all(map(_is_supported_node, node.walk()))


@dataclass(frozen=True, slots=True)
class ExpressionParser:
    """Builds the tree of one text."""

    text: str

    def expression(self, node: exp.Expr) -> nodes.Expression:
        self._check(node)
        if type(node) not in _PARSERS:
            raise unsupported(self.text, f"'{sql_of(node)}'")
        return _PARSERS[type(node)][1](self, node)

    def _check(self, *parts: exp.Expr) -> None:
        for node in parts:
            if not _is_supported_node(node):
                raise unsupported(self.text, f"'{sql_of(node)}'")

    def column(self, node: exp.Expr) -> nodes.Expression:
        self._check(*node.walk())
        root = node
        while isinstance(root, exp.Dot):
            root = root.this
        if not isinstance(root, exp.Column) or not isinstance(node, exp.Column | exp.Dot) or node.find(exp.Star):
            raise unsupported(self.text, f"'{sql_of(node)}'")
        return nodes.ColumnRef(sql_of(node), tuple(part.name for part in node.parts))

    def literal(self, node: exp.Expr) -> nodes.Expression:
        return nodes.Constant(sql_of(node), node.this, pl.String()) if node.is_string else self._number(node, node.this)

    def _number(self, node: exp.Expr, text: str) -> nodes.Constant:
        found = number(text)
        if found is None:
            reason = "the number is outside the range of Spark's numbers"
            raise wrong_type(self.text, sql_of(node), reason, "Use at most 38 digits, or a DOUBLE up to 1.79e308.")
        return nodes.Constant(sql_of(node), *found)

    def struct(self, node: exp.Expr) -> nodes.Expression:
        parts = node.expressions
        if len(parts) == 1 and isinstance(parts[0].this if isinstance(parts[0], exp.Column) else parts[0], exp.Star):
            return nodes.WholeRow(sql_of(node))
        names = [part.this.name if isinstance(part, exp.PropertyEQ) else f"col{at}" for at, part in enumerate(parts, 1)]
        if len(set(names)) < len(names) or not names:
            raise unsupported(
                self.text, f"'{sql_of(node)}'", "Give each field a name of its own, as in struct(a AS b)."
            )
        values = (part.expression if isinstance(part, exp.PropertyEQ) else part for part in parts)
        return nodes.StructOf(sql_of(node), tuple(names), tuple(map(self.expression, values)))

    def binary(self, node: exp.Expr) -> nodes.Expression:
        left, right = self.expression(node.this), self.expression(node.expression)
        return _BINARY_NODES[type(node)](sql_of(node), left, right)

    def _compared(
        self, node: exp.Expr, operator: nodes.ComparisonOperator, left: exp.Expr, right: exp.Expr
    ) -> nodes.Comparison:
        return nodes.Comparison(sql_of(node), self.expression(left), self.expression(right), operator)

    def function(self, node: exp.Expr) -> nodes.Expression:
        function, *names = CALLS[type(node)]
        given = [node.args.get(name) for name in names]
        if function == "trim":
            function = _TRIMS[node.args.get("position")]
        if None in given[: len(given) - (function == "substring")]:
            raise unsupported(self.text, f"'{sql_of(node)}'", "An argument is missing.")
        parts = [part.this if isinstance(part, exp.TsOrDsToDate) else part for part in given if part is not None]
        if function == "replace" and not all(map(_is_text, parts[1:])):
            raise unsupported(self.text, f"'{sql_of(node)}'", "What is replaced and by what must be string literals.")
        operands = tuple(map(self.expression, parts))
        if function == "left":
            first = nodes.Constant("1", 1, pl.Int32())
            return nodes.FunctionCall(sql_of(node), (operands[0], first, operands[1]), "substring")
        return nodes.FunctionCall(sql_of(node), operands, function)

    def concat(self, node: exp.Expr) -> nodes.Expression:
        parts = [node.this, node.expression] if isinstance(node, exp.DPipe) else node.expressions
        if all(map(_is_text, parts)):
            quote = 'Write a quote inside a string with the other kind of quote, as in "it\'s".'
            raise unsupported(self.text, f"'{sql_of(node)}'", quote)
        return nodes.FunctionCall(sql_of(node), tuple(map(self.expression, parts)), "concat")

    def nullif(self, node: exp.Expr) -> nodes.Expression:
        same = self._compared(node, "=", node.this, node.expression)
        return nodes.CaseWhen(sql_of(node), (same,), (nodes.Constant("NULL", None, pl.Null()),), same.left)

    def is_null(self, node: exp.Expr) -> nodes.Expression:
        if not isinstance(node.expression, exp.Null):
            raise unsupported(self.text, f"'{sql_of(node)}'")
        return nodes.FunctionCall(sql_of(node), (self.expression(node.this),), "is_null")

    def in_list(self, node: exp.Expr) -> nodes.Expression:
        return nodes.InList(sql_of(node), self.expression(node.this), tuple(map(self.expression, node.expressions)))

    def between(self, node: exp.Expr) -> nodes.Expression:
        low = self._compared(node, ">=", node.this, node.args["low"])
        high = self._compared(node, "<=", node.this, node.args["high"])
        return nodes.Logical(sql_of(node), low, high, "and")

    def like(self, node: exp.Expr) -> nodes.Expression:
        pattern = node.expression
        if not isinstance(pattern, exp.Literal) or not pattern.is_string or "\\" in pattern.this:
            raise unsupported(self.text, "LIKE with a pattern that is not a string literal, or that has escapes")
        return nodes.Like(sql_of(node), self.expression(node.this), pattern.this, bool(node.args.get("negate")))

    def case(self, node: exp.Expr) -> nodes.Expression:
        branches = node.args["ifs"]
        self._check(*branches)
        if node.this is None:
            conditions = tuple(self.expression(branch.this) for branch in branches)
        else:
            conditions = tuple(self._compared(node, "=", node.this, branch.this) for branch in branches)
        values = tuple(self.expression(branch.args["true"]) for branch in branches)
        default = self.expression(node.args.get("default") or exp.Null())
        return nodes.CaseWhen(sql_of(node), conditions, values, default)

    def if_else(self, node: exp.Expr) -> nodes.Expression:
        if node.args.get("false") is None:
            raise unsupported(self.text, "IF without a third argument", "Write IF(condition, value, NULL).")
        condition, value, default = (self.expression(node.args[name]) for name in ("this", "true", "false"))
        return nodes.CaseWhen(sql_of(node), (condition,), (value,), default)

    def coalesce(self, node: exp.Expr) -> nodes.Expression:
        return nodes.Coalesce(sql_of(node), tuple(map(self.expression, [node.this, *node.expressions])))

    def negative(self, node: exp.Expr) -> nodes.Expression:
        inner = node.this
        if _is_number(inner):
            return self._number(node, f"-{inner.this}")
        if isinstance(inner, exp.Cast) and _is_number(inner.this):
            self._check(inner)
            return self._cast_to(node, self._number(node, f"-{inner.this.this}"), inner.to)
        return nodes.FunctionCall(sql_of(node), (self.expression(inner),), "negative")

    def cast(self, node: exp.Expr) -> nodes.Expression:
        inner, to = node.this, node.args["to"]
        if not (isinstance(inner, exp.Literal) and inner.is_string):
            return self._cast_to(node, self.expression(inner), to)
        dtype = self._type(to)
        value = moment(inner.this, dtype)
        if value is None:
            reason = f"the text '{inner.this}' cannot be read as {dtype} in every session"
            advice = "Write DATE '2026-01-31', TIMESTAMP '2026-01-31T09:00:00Z' or TIMESTAMP_NTZ '2026-01-31T09:00:00'."
            raise wrong_type(self.text, sql_of(node), reason, advice)
        return nodes.Constant(sql_of(node), value, dtype)

    def _cast_to(self, node: exp.Expr, operand: nodes.Expression, to: exp.DataType) -> nodes.Expression:
        dtype = self._type(to)
        if isinstance(operand, nodes.Constant) and operand.dtype.is_integer() and dtype.is_integer():
            assert isinstance(operand.value, int)  # for the type checker: as its type says
            if fits(operand.value, dtype):
                return nodes.Constant(sql_of(node), operand.value, dtype)
        return nodes.Cast(sql_of(node), operand, dtype)

    def _type(self, to: exp.DataType) -> pl.DataType:
        self._check(*to.walk())
        return polars_type(type_of(to, self.text), self.text)


def wrong_type(text: str, part: str, reason: str, advice: str) -> DefinitionError:
    """The error for a part of a text whose types do not fit."""
    return DefinitionError("EXPRESSION_TYPE", f"'{text}': in '{part}', {reason}. {advice}")


def unsupported(text: str, part: str, advice: str = "") -> DefinitionError:
    """The error for a part of a text that is not supported."""
    message = f"'{text}': {part} is not in the list of supported expressions: {SUPPORTED}."
    return DefinitionError("EXPRESSION_UNSUPPORTED", f"{message} {advice}".rstrip())


def _unreadable(text: str, reason: str) -> DefinitionError:
    message = f"'{text}' is not a SQL expression: {reason} Write one expression in Spark's SQL, as in 'amount > 0'."
    return DefinitionError("EXPRESSION_UNREADABLE", message)


def sql_of(node: exp.Expr) -> str:
    """A part of a text as Spark writes it."""
    return node.sql(dialect="spark")


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _is_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


_BINARY_NODES: Mapping[type[exp.Expr], Callable[[str, nodes.Expression, nodes.Expression], nodes.Expression]] = {
    exp.EQ: partial(nodes.Comparison, operator="="),
    exp.NEQ: partial(nodes.Comparison, operator="<>"),
    exp.LT: partial(nodes.Comparison, operator="<"),
    exp.LTE: partial(nodes.Comparison, operator="<="),
    exp.GT: partial(nodes.Comparison, operator=">"),
    exp.GTE: partial(nodes.Comparison, operator=">="),
    exp.NullSafeEQ: partial(nodes.Comparison, operator="<=>"),
    exp.And: partial(nodes.Logical, operator="and"),
    exp.Or: partial(nodes.Logical, operator="or"),
    exp.Add: partial(nodes.Arithmetic, operator="+"),
    exp.Sub: partial(nodes.Arithmetic, operator="-"),
    exp.Mul: partial(nodes.Arithmetic, operator="*"),
    exp.Div: partial(nodes.Arithmetic, operator="/"),
    exp.Mod: partial(nodes.Arithmetic, operator="%"),
    exp.IntDiv: partial(nodes.Arithmetic, operator="div"),
}
_OF_ONE = (
    *(exp.Not, exp.Abs, exp.Upper, exp.Lower, exp.Length, exp.Trim, exp.Year, exp.Quarter, exp.Month, exp.Day),
    *(exp.DayOfYear, exp.DayOfWeek, exp.WeekOfYear, exp.Hour, exp.Minute, exp.Second),
)
_OF_TWO = (exp.Left, exp.Right, exp.StartsWith, exp.EndsWith, exp.Contains, exp.DateDiff)
CALLS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    **{kind: (kind.key, "this") for kind in _OF_ONE},
    **{kind: (kind.key, "this", "expression") for kind in _OF_TWO},
    exp.DayOfMonth: ("day", "this"),
    exp.LastDay: ("last_day", "this"),
    exp.TsOrDsAdd: ("date_add", "this", "expression"),
    exp.UnixSeconds: ("unix_seconds", "this"),
    exp.UnixMillis: ("unix_millis", "this"),
    exp.UnixMicros: ("unix_micros", "this"),
    exp.Substring: ("substring", "this", "start", "length"),
    exp.Replace: ("replace", "this", "expression", "replacement"),
}
"""Functions of SQL text, and where sqlglot keeps their arguments."""
_TRIMS = {None: "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_FURTHER: Mapping[type[exp.Expr], str] = {exp.Trim: "position", exp.TsOrDsAdd: "unit"}
_UNARY = frozenset({"this"})
_BINARY = frozenset({"this", "expression"})
_SEVERAL = frozenset({"this", "expressions"})
_Parser = Callable[[ExpressionParser, exp.Expr], nodes.Expression]
_PARSERS: Mapping[type[exp.Expr], tuple[frozenset[str], _Parser]] = {
    exp.Column: (frozenset({"this", "table", "db", "catalog"}), ExpressionParser.column),
    exp.Dot: (_BINARY, ExpressionParser.column),
    exp.Literal: (frozenset({"this", "is_string"}), ExpressionParser.literal),
    exp.Boolean: (_UNARY, lambda parser, node: nodes.Constant(sql_of(node), bool(node.this), pl.Boolean())),
    exp.Null: (frozenset(), lambda parser, node: nodes.Constant(sql_of(node), None, pl.Null())),
    exp.Struct: (frozenset({"expressions"}), ExpressionParser.struct),
    exp.Paren: (_UNARY, lambda parser, node: parser.expression(node.this)),
    **dict.fromkeys(_BINARY_NODES, (_BINARY, ExpressionParser.binary)),
    exp.Div: (_BINARY | {"safe"}, ExpressionParser.binary),
    **{
        kind: (frozenset({*names, _FURTHER.get(kind, "this")}), ExpressionParser.function)
        for kind, (_, *names) in CALLS.items()
    },
    **dict.fromkeys((exp.Concat, exp.DPipe), (_SEVERAL | {"expression", "safe"}, ExpressionParser.concat)),
    exp.Nullif: (_BINARY, ExpressionParser.nullif),
    exp.Is: (_BINARY, ExpressionParser.is_null),
    exp.In: (_SEVERAL, ExpressionParser.in_list),
    exp.Between: (frozenset({"this", "low", "high"}), ExpressionParser.between),
    exp.Like: (frozenset({*_BINARY, "negate"}), ExpressionParser.like),
    exp.Case: (frozenset({"this", "ifs", "default"}), ExpressionParser.case),
    exp.If: (frozenset({"this", "true", "false"}), ExpressionParser.if_else),
    exp.Coalesce: (_SEVERAL, ExpressionParser.coalesce),
    exp.Neg: (_UNARY, ExpressionParser.negative),
    **dict.fromkeys((exp.Cast, exp.TryCast), (frozenset({"this", "to"}), ExpressionParser.cast)),
}
"""The supported nodes, the arguments that each may have, and what reads it."""
OPERATIONS = frozenset(_PARSERS)
"""The kinds of syntax trees that compute something."""
_PARTS: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.DataType: frozenset({"this", "expressions", "nested"}),
    exp.DataTypeParam: _UNARY,
    exp.PropertyEQ: _BINARY,
    exp.Star: frozenset(),
    exp.TsOrDsToDate: _UNARY,
    exp.Var: _UNARY,
}
"""Parts of the nodes above that mean nothing by themselves."""


def _is_supported_node(node: exp.Expr) -> bool:
    allowed = _PARSERS[type(node)][0] if type(node) in _PARSERS else _PARTS.get(type(node))
    given = {name for name, value in node.args.items() if value is not None and value is not False and value != []}
    return allowed is not None and given <= allowed
