"""What of Spark's SQL is translated, and the error for everything else."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from headrace.errors import DefinitionError

LISTED = (
    "columns and struct fields (a.b), number, string, boolean, NULL, DATE and TIMESTAMP literals, = <> < <= > >= <=>, "
    "AND, OR, NOT, IS [NOT] NULL, [NOT] IN, [NOT] BETWEEN, [NOT] LIKE, CASE, IF, COALESCE, + - * and ABS on DOUBLE or "
    "FLOAT, CAST to DOUBLE or to a wider integer, UPPER, LOWER, LENGTH"
)


def unsupported(text: str, part: str, advice: str = "") -> DefinitionError:
    """The error for SQL that Spark knows and the list does not."""
    message = f"'{text}': {part} is not in the list of supported expressions: {LISTED}."
    return DefinitionError("EXPRESSION_UNSUPPORTED", f"{message} {advice}".rstrip())


_UNARY = frozenset({"this"})
_BINARY = frozenset({"this", "expression"})
_LISTS = frozenset({"this", "expressions"})
_CASTS = frozenset({"this", "to"})
ARGUMENTS: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Null: frozenset(),
    **dict.fromkeys((exp.Boolean, exp.Paren, exp.Not, exp.Neg, exp.Abs, exp.Upper, exp.Lower, exp.Length), _UNARY),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Is), _BINARY),
    exp.Like: frozenset({*_BINARY, "negate"}),
    **dict.fromkeys((exp.Dot, exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul), _BINARY),
    **dict.fromkeys((exp.In, exp.Coalesce), _LISTS),
    **dict.fromkeys((exp.Cast, exp.TryCast), _CASTS),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true", "false"}),
    # Parts of the nodes above that carry no meaning of their own.
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.DataType: frozenset({"this", "expressions", "nested"}),
    exp.DataTypeParam: _UNARY,
}
"""The nodes of the list, and what each may be written with."""
