"""Expressions over one row: a listed set of SQL with Spark's meaning, translated to Polars."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.errors import DefinitionError
from headrace.expressions.listed import ARGUMENTS, unsupported
from headrace.expressions.operands import Schema
from headrace.expressions.translation import Scope


@dataclass(frozen=True, slots=True)
class RowExpression:
    """An expression over one row, read but not yet bound to a schema.

    >>> large = parse_condition("amount > 100 AND shop IS NOT NULL")
    >>> sorted(large.columns)
    ['amount', 'shop']
    """

    text: str
    columns: frozenset[str]
    node: exp.Expr = field(repr=False, compare=False)

    def to_polars(self, schema: Schema) -> pl.Expr:
        """The Polars expression that computes this over frames of the schema.

        >>> rows = pl.DataFrame({"amount": [5.0, float("nan"), None]})
        >>> rows.select(parse_row_expression("amount > 100").to_polars(rows.schema)).to_series().to_list()
        [False, True, None]
        """
        return Scope(self.text, schema).operand(self.node).value

    def truth(self, schema: Schema) -> pl.Expr:
        """The Polars expression of a condition; NULL alone is one too."""
        return self.to_polars(schema).cast(pl.Boolean)

    def type(self, schema: Schema) -> pl.DataType:
        """The type of the result, found without reading a row.

        >>> parse_row_expression("amount * 2").type({"amount": pl.Float64()})
        Float64
        """
        return Scope(self.text, schema).operand(self.node).dtype


def parse_row_expression(text: str) -> RowExpression:
    """Read an expression over one row, refusing anything that is not listed."""
    return row_expression(read(text), text)


def parse_condition(text: str, schema: Schema | None = None) -> RowExpression:
    """Read a condition; with a schema its type is checked at once."""
    condition = parse_row_expression(text)
    if schema is not None:
        check_condition(condition, schema)
    return condition


def check_condition(condition: RowExpression, schema: Schema) -> None:
    """Refuse an expression that is neither true nor false of a row of the schema."""
    dtype = condition.type(schema)
    if dtype not in (pl.Boolean(), pl.Null()):
        raise DefinitionError(
            "CONDITION_TYPE",
            f"'{condition.text}' is {dtype}, so it cannot be a condition. Write a comparison, as in 'amount > 0'.",
        )


def read(text: str) -> exp.Expr:
    """One SQL expression as a syntax tree."""
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


def row_expression(node: exp.Expr, text: str) -> RowExpression:
    """A syntax tree as a row expression, once every node of it is known to be listed."""
    for part in node.walk():
        if not _is_listed_node(part):
            raise unsupported(text, f"'{part.sql(dialect='spark')}'", _advice(part))
    columns = frozenset(column.parts[0].name for column in node.find_all(exp.Column))
    return RowExpression(text, columns, node)


def _unreadable(text: str, reason: str) -> DefinitionError:
    message = f"'{text}' is not a SQL expression: {reason} Write one expression in Spark's SQL, as in 'amount > 0'."
    return DefinitionError("EXPRESSION_UNREADABLE", message)


def is_listed(node: exp.Expr) -> bool:
    """Whether every node of a syntax tree is in the list."""
    return all(_is_listed_node(part) for part in node.walk())


def _is_listed_node(node: exp.Expr) -> bool:
    allowed = ARGUMENTS.get(type(node))
    return allowed is not None and all(name in allowed for name, value in node.args.items() if _given(value))


def _given(value: object) -> bool:
    return value is not None and value is not False and value != []


def _advice(node: exp.Expr) -> str:
    if isinstance(node, exp.Concat):
        return 'Write a quote inside a string with the other kind of quote, as in "it\'s".'
    return ""
